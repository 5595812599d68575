"""INI files of Python projects (setup.cfg, tox.ini), read as far as they can be."""

from collections.abc import Iterator
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from functools import lru_cache

#: Files that are kept as they were read, by their texts: a project has two or three, at either commit.
_FILES = 16


@lru_cache(maxsize=_FILES)
def read(text: str) -> ConfigParser | None:
    """The file, without filling anything in; None where it can't be read. One for all who read the same
    text: nobody writes to it."""
    parser = ConfigParser(interpolation=None, strict=False, allow_no_value=True)
    try:
        parser.read_string(text.removeprefix("\ufeff"))
    except (ConfigParserError, AttributeError):  # a key without a value, and lines below it
        return None
    return parser


def parsed(text: str) -> ConfigParser:
    """The file; empty where it can't be read."""
    return read(text) or ConfigParser()


def items(parser: ConfigParser, section: str) -> Iterator[tuple[str, str]]:
    """A section's keys and values; none where there is no such section."""
    for key, value in parser.items(section) if parser.has_section(section) else ():
        yield key, value or ""


def requirements(value: str | None) -> list[str]:
    """The requirements that a value has; none if it names files that have them."""
    return [] if (value or "").lstrip().startswith("file:") else lines(value)


def lines(value: str | None) -> list[str]:
    """A value's lines that say something."""
    return [line.strip() for line in (value or "").splitlines() if line.strip()]
