"""What a source distribution says that it requires, read from its archive: nothing in it is run.

setuptools writes what setup.py computed into ``requires.txt`` when the archive is made. It may differ on
another machine, so that it can show that something is in the way, never that nothing is.
"""

import re
from collections.abc import Callable, Iterator

from packaging.requirements import Requirement

from fallback_plugins.pypi.archives import MemberTooLargeError, fetched, member_text
from fallback_plugins.pypi.manifests.requirements import requirement_in
from fallback_plugins.pypi.manifests.setup_call import setup_call
from fallback_plugins.pypi.resolving.scratch_lock import ReleaseFile

#: Of what an archive says that it requires: a few lines, as a rule.
MAX_REQUIRES_BYTES = 1_000_000

_REQUIRES = ".egg-info/requires.txt"

#: What a setup.py has that runs setuptools' own setup(), and what may make it require something.
_SETUP = re.compile(r"^[ \t]*(?:from|import) (?:setuptools|distutils)\b", re.MULTILINE)
_MAY_REQUIRE = re.compile(r"require|\*\*|\bpbr\b|\b(?:exec|eval)\b", re.IGNORECASE)


def sdist_requirements(file: ReleaseFile) -> tuple[Requirement, ...] | None:
    """What it requires without extras, on this Python; None: it can't be had, or does not say.

    Raises ToolFailedError where the registry does not answer now.
    """
    content = fetched(file.url, file.hash)
    if content is None:
        return None
    try:
        text = member_text(content, lambda name: name.endswith(_REQUIRES), MAX_REQUIRES_BYTES)
        if text is None and member_text(content, _lists_sources, MAX_REQUIRES_BYTES) is not None:
            return ()  # setuptools writes the one only if something is required, and the other always
        if text is None and _requires_nothing(content):
            return ()
    except MemberTooLargeError:
        return None
    return None if text is None else tuple(_parsed(text))


def _lists_sources(name: str) -> bool:
    return name.endswith(".egg-info/SOURCES.txt")


def _requires_nothing(content: bytes) -> bool:
    """Return whether a setup.py calls setup() and nothing in it, or beside it, can require a package."""
    texts = {
        name: member_text(content, _beside(name), MAX_REQUIRES_BYTES)
        for name in ("setup.py", "setup.cfg", "pyproject.toml")
    }
    script = texts["setup.py"] or ""
    settings = texts["setup.cfg"] or ""
    calls = _SETUP.search(script) is not None and "name" in setup_call(script).keywords
    return calls and texts["pyproject.toml"] is None and not _MAY_REQUIRE.search(script + settings)


def _beside(name: str) -> Callable[[str], bool]:
    return lambda member: member.count("/") == 1 and member.endswith(f"/{name}")


def _parsed(text: str) -> Iterator[Requirement]:
    """The lines before the first section, and those of ``[:marker]`` that hold here."""
    applies = True
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            extra, _, marker = line[1:-1].partition(":")
            applies = not extra and _holds(marker)
        elif line and applies and (asked := requirement_in(line)) is not None:
            yield asked


def _holds(marker: str) -> bool:
    asked = requirement_in(f"it ; {marker}")
    return asked is not None and (asked.marker is None or asked.marker.evaluate())
