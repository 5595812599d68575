"""The ``--hash`` options of one requirement, replaced in the layout that they were found in."""

from collections.abc import Sequence

from fallback_plugins.pypi.manifests.requirements import Declaration
from fallback_plugins.pypi.manifests.rewrite import Edit


def hash_edit(text: str, declaration: Declaration, hashes: Sequence[str]) -> Edit:
    """The edit that puts these hashes (``sha256:…``) in the place of the declaration's own.

    What stands between two of them (a continuation, its indentation) is kept; the order is the sorted
    one, as the compilers write it.
    """
    spans = declaration.hashes
    start, end = spans[0][0], spans[-1][1]
    if len(spans) > 1:
        between = text[spans[0][1] : spans[1][0]]
    else:
        head = text[:start].rstrip(" \t\\\r\n")
        between = text[len(head) : start]
    return Edit(start, end, between.join(f"--hash={value}" for value in sorted(hashes)))
