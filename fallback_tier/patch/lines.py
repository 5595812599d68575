"""Lines as git sees them: only ``\\n`` ends one.

``str.splitlines`` also cuts at form feeds, ``\\x1c``, U+2028 and others, which git keeps inside a
line; a diff made from its lines is refused, or worse, applied to something else.
"""


def git_lines(text: str) -> list[str]:
    """The lines of ``text``, each with its ``\\n``; a last line may lack one. Empty text: none."""
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines
