"""INI files of Python projects (setup.cfg, tox.ini), read as far as they can be."""

from collections.abc import Iterator
from configparser import ConfigParser
from configparser import Error as ConfigParserError


def read(text: str) -> ConfigParser | None:
    """The file, without filling anything in; None where it can't be read."""
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


def lines(value: str | None) -> list[str]:
    """A value's lines that say something."""
    return [line.strip() for line in (value or "").splitlines() if line.strip()]
