"""Which of the repository's own text goes into the prompt: few places, chosen without a model.

1. what the last failure summary names: files at their lines, then code that has its symbols (a
   retry's first interest);
2. manifests, around the lines that name the affected package;
3. units of source (whole functions, methods, module code), best first: they define what the advisory
   names, call the vulnerable package, are about what it says (BM25), or call what was found. Tests come
   last: they may explain, but must not be edited.

What a model that declines asks for besides is found by what it names (``asked``).

Work is bounded whatever the repository's size, and the order depends on nothing but the input.
"""

from fallback_tier.prompt.context.asked import asked_for as asked_for
from fallback_tier.prompt.context.packing import MAX_SNIPPET_BYTES as MAX_SNIPPET_BYTES
from fallback_tier.prompt.context.packing import MAX_SNIPPETS as MAX_SNIPPETS
from fallback_tier.prompt.context.packing import Snippet as Snippet
from fallback_tier.prompt.context.select import select_snippets as select_snippets
from fallback_tier.prompt.context.sources import MAX_SCANNED_FILES as MAX_SCANNED_FILES
