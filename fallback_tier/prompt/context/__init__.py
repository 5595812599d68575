"""The repository's own text in the prompt: few parts, chosen without a model.

1. what the last failure summary names: files at their lines, then code that has its symbols (most
   important for a retry);
2. manifests, around the lines that name the affected package;
3. units of source (whole functions, methods, module code), best first: they define what the advisory
   names, call the vulnerable package, are about its subject (BM25), or call units already found. Tests
   come last: they may explain, but must not be edited.

If a model declines, the code that it names is added (``asked``).

The work is bounded for any size of repository, and the order depends only on the input.
"""

from fallback_tier.prompt.context.asked import asked_for as asked_for
from fallback_tier.prompt.context.packing import MAX_SNIPPET_BYTES as MAX_SNIPPET_BYTES
from fallback_tier.prompt.context.packing import MAX_SNIPPETS as MAX_SNIPPETS
from fallback_tier.prompt.context.packing import Snippet as Snippet
from fallback_tier.prompt.context.select import select_snippets as select_snippets
from fallback_tier.prompt.context.sources import MAX_SCANNED_FILES as MAX_SCANNED_FILES
