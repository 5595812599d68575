"""Full names of tests, made of those of what is around them: within bounds, whatever a log says.

A log can name one thing at great length, and then a hundred thousand tests in it.
"""

from hashlib import sha256

#: No test's name that somebody has to read is longer, with all that is around it.
MAX_NAME_CHARS = 300

#: The full names of one log: as many as a report may have (``MAX_REPORT_BYTES``).
MAX_NAMES_CHARS = 32 * 1024 * 1024

#: Two names of one digest are not found, not even by who looks for them.
_DIGEST_CHARS = 32


def shortened(name: str) -> str:
    """A name of at most MAX_NAME_CHARS as it is; of a longer one its beginning and a digest of it all.

    Two names stay two: what is shortened is longer than what is not.
    """
    if len(name) <= MAX_NAME_CHARS:
        return name
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    return f"{name[:MAX_NAME_CHARS]}\u2026 {digest}"


class Names:
    """The full names of one log's tests."""

    def __init__(self) -> None:
        self._room = MAX_NAMES_CHARS

    @property
    def are_lost(self) -> bool:
        """Are they longer together than those of any real log? Then none counts."""
        return self._room < 0

    def full(self, around: str, name: str, by: str = " > ") -> str:
        """A test's name behind what is around it, shortened. What many have around them is given shortened:
        it is read for each."""
        made = shortened(f"{around}{by}{name}" if around else name)
        self._room -= len(made)
        return "" if self.are_lost else made
