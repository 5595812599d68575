"""JSON schemas of the outputs, checked where tests run commands.

jsonschema compiles a grammar of internationalised addresses (``iri``) when it is imported: 1.5 CPU s in
each process of the tests. No schema here has this format, so the module counts as not installed.
"""

import sys

sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # None: an import fails
