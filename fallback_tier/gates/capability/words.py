"""Lists of words, as they are written in the tables."""


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())
