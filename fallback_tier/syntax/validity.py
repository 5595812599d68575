"""Does a text parse? A check that needs no interpreter, and runs nothing."""

from fallback_tier.syntax.grammars import grammar_of, parse


def first_error_line(text: str, suffix: str) -> int | None:
    """The first line (from 1) at which the text is not of its language.

    ``suffix`` is the file's (``.py``, ``.tsx``). None: it parses cleanly, the language is not one of
    ours, or the text is beyond MAX_PARSE_STEPS. A grammar knows less than its compiler (a dialect, a
    newer syntax), so judge an edit by what it changes: a text that had an error before proves nothing.
    """
    grammar = grammar_of(f"file{suffix}")
    tree = parse(text.encode("utf-8", "replace"), grammar) if grammar else None
    if tree is None or not tree.root_node.has_error:
        return None
    node = tree.root_node
    while not (node.is_error or node.is_missing):
        inner = next((child for child in node.children if child.has_error), None)
        if inner is None:
            break
        node = inner
    return node.start_point.row + 1
