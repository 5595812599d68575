"""The Almanac's two files: ``needs NAME VERSION`` lines, and a lock of ``NAME VERSION URL HASH`` lines."""

from collections.abc import Iterable
from dataclasses import dataclass

MANIFEST, LOCK = "almanac.list", "almanac.lock"


@dataclass
class Release:
    name: str
    version: str
    url: str
    hash: str

    @property
    def line(self) -> str:
        return f"{self.name} {self.version} {self.url} {self.hash}\n"


def read_manifest(text: str) -> dict[str, str]:
    """Name → version. Raises ValueError."""
    found = {}
    for words in _lines(text):
        if len(words) != 3 or words[0] != "needs":
            raise ValueError(f"no line of an {MANIFEST}: {' '.join(words)}")
        found[words[1]] = words[2]
    return found


def read_lock(text: str) -> list[Release]:
    """Raises ValueError."""
    lines = list(_lines(text))
    if bad := [words for words in lines if len(words) != 4]:
        raise ValueError(f"no line of an {LOCK}: {' '.join(bad[0])}")
    return [Release(*words) for words in lines]


def raised_in_manifest(text: str, name: str, version: str) -> str:
    """Every other byte is kept."""
    lines = text.splitlines(keepends=True)
    return "".join(
        f"needs {name} {version}\n" if line.split()[:2] == ["needs", name] else line
        for line in lines
    )


def raised_in_lock(text: str, release: Release) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(release.line if line.split()[:1] == [release.name] else line for line in lines)


def _lines(text: str) -> Iterable[list[str]]:
    return (line.split() for line in text.splitlines() if line.strip())
