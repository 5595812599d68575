"""Requirements that are literals in another text: an install command's arguments, a script's own metadata.

Only what is written out is read: a version that is a variable is no literal, and of an install command's
arguments only pins are. Offsets are of the whole text, so that an edit keeps every other byte.
"""

import posixpath
import re
from collections.abc import Iterator

from fallback_plugins.pypi.manifests.kinds import Kind, kind_in_set
from fallback_plugins.pypi.manifests.requirements import Declaration, declaration_at

#: Comments, and the ends of continued lines.
_COMMENT = re.compile(r"(?:^|(?<=[ \t]))(?:#|REM[ \t]|//|::)[^\r\n]*", re.MULTILINE | re.IGNORECASE)
_CONTINUED = re.compile(r"[\\`^][ \t]*\r?\n")

#: What is between words of a command, which may be items of a list: ``["pip", "install", "left==1.0"]``.
_GAP = r"""(?:["',]*[ \t]+["']?|["'][ \t]*,[ \t]*["'])"""
_QUOTED = r"\"[^\"\r\n]*\"|'[^'\r\n]*'"
#: A command that installs what its arguments name, up to the end of the command.
_COMMAND = re.compile(
    rf"(?<![\w.-])(?:pip(?:[23](?:\.\d+)?)?|pipx|uv{_GAP}(?:pip|tool))"
    rf"(?:{_GAP}-[\w-]+(?:=[^\s\"',]+)?)*{_GAP}(?:install|wheel|download|inject|run)\b"
    rf"(?P<arguments>(?:{_QUOTED}|[^\r\n&|;])*)"
)
#: nox: ``session.install("left==1.0", …)``, over lines.
_SESSION = re.compile(r"\bsession\.install\((?P<arguments>(?:[^()]|\([^()]*\))*)\)")
_FUNCTION = re.compile(r"^[ \t]*def[ \t]+(?P<name>\w+)|^(?=\S)", re.MULTILINE)

#: tox: ``deps =`` with the lines below it; lines for some factors only are left out.
_SECTION = re.compile(r"^\[(?P<name>[^\]\r\n]*)\]", re.MULTILINE)
_DEPS = re.compile(
    r"^deps[ \t]*=(?P<arguments>[^\r\n]*(?:\r?\n(?:[ \t]+[^\r\n]*|[ \t]*(?=\r?\n)))*)", re.MULTILINE
)
_FACTOR = re.compile(r"^[ \t]*[\w{},!. -]+:[ \t][^\r\n]*", re.MULTILINE)
#: Environments of tox and nox that are made to be old.
_OLDEST = re.compile(r"old|min|low|legacy|compat|earl|past|lts|prev", re.IGNORECASE)
_TEST_TOOLS = frozenset({"tox.ini", "noxfile.py"})

#: conda: items below ``- pip:``, indented further.
_CONDA_PIP = re.compile(
    r"^(?P<indent>[ ]*)-[ ]+pip:[ ]*\r?\n(?P<arguments>(?:(?P=indent)[ ]+[^\r\n]*(?:\r?\n|\Z))+)",
    re.MULTILINE,
)

#: A requirement among other words; not a path, an address or an option's value.
_OPERATOR = r"(?:===|==|~=|!=|<=|>=|<|>)"
_REQUIREMENT = re.compile(
    r"(?<![\w./:@$%{}=+-])[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:\[[\w,. -]*\])?"
    rf"[ \t]*{_OPERATOR}[ \t]*[\w.!*+-]+(?:[ \t]*,[ \t]*{_OPERATOR}[ \t]*[\w.!*+-]+)*(?=[\s\"',;)\]]|\Z)"
)

#: How a script's own metadata begins (PEP 723).
SCRIPT_START = "# /// script"

#: … the whole of it, and the array of its requirements.
_SCRIPT = re.compile(
    r"^# /// script[ \t]*\r?\n(?P<block>(?:^#(?:[ \t][^\r\n]*)?\r?\n)*?)^# ///[ \t]*$", re.MULTILINE
)
_DEPENDENCIES = re.compile(
    r"^#[ \t]*dependencies[ \t]*=[ \t]*\[(?P<items>(?:\"[^\"\r\n]*\"|'[^'\r\n]*'|[^\]\"'])*)\]",
    re.MULTILINE,
)
_STRING = re.compile(
    r"\"(?P<double>[^\"\r\n]*)\"|'(?P<single>[^'\r\n]*)'|(?<!^)#[^\r\n]*", re.MULTILINE
)


def literals(path: str, text: str, package: str) -> tuple[Declaration, ...]:
    """Return the declarations of a package among a file's literals, top down; none for another kind.

    Environments of tox and nox that hold several versions of it, or are called old, hold what a project
    still supports: none of them is read.
    """
    found = {
        start: declaration
        for start, end in _spans(path, text)
        if (declaration := declaration_at(text, start, end, package)) and declaration.clauses
    }
    read = tuple(found[start] for start in sorted(found))
    if kind_in_set(path) is Kind.COMMANDS:
        read = tuple(declaration for declaration in read if declaration.pin is not None)
    several = len({declaration.pep440 for declaration in found.values()}) > 1
    return () if several and posixpath.basename(path) in _TEST_TOOLS else read


def has_literals(path: str, text: str) -> bool:
    """Return whether a file that is changed for its literals alone has any requirement among them."""
    return next(_spans(path, text), None) is not None


def script_metadata(text: str) -> str:
    """Return the lines of a script's own metadata, without their comment signs; empty if it has none."""
    blocks = (match["block"] for match in _SCRIPT.finditer(text))
    return "\n".join(it.removeprefix("#").strip() for block in blocks for it in block.splitlines())


def without(text: str, read: tuple[Declaration, ...]) -> str:
    """Return the text with the versions of these declarations blanked."""
    for one in read:
        start, end = one.clauses[0].operator_start, one.clauses[-1].end
        text = text[:start] + " " * (end - start) + text[end:]
    return text


def _spans(path: str, text: str) -> Iterator[tuple[int, int]]:
    kind = kind_in_set(path)
    if kind is Kind.SCRIPT:
        yield from _in_script(text)
    elif kind is Kind.COMMANDS and any(word in text for word in ("install", "deps", "pip", "uv")):
        blanked = _CONTINUED.sub(_blank, _COMMENT.sub(_blank, text))
        yield from _in_commands(posixpath.basename(path), blanked)


def _in_script(text: str) -> Iterator[tuple[int, int]]:
    for block in _SCRIPT.finditer(text):
        for listed in _DEPENDENCIES.finditer(text, *block.span("block")):
            for match in _STRING.finditer(text, *listed.span("items")):
                if match.lastgroup:
                    yield match.span(match.lastgroup)


def _in_commands(name: str, text: str) -> Iterator[tuple[int, int]]:
    # A pin with hashes is not raised: they are those of the old release.
    parts = [it.span("arguments") for it in _COMMAND.finditer(text) if "--hash" not in it[0]]
    if name.endswith(".py"):
        parts += [
            match.span("arguments")
            for match in _SESSION.finditer(text)
            if not _OLDEST.search(_last(_FUNCTION, text, match.start()))
        ]
    elif name == "tox.ini":
        text = _FACTOR.sub(_blank, text)
        parts += [
            match.span("arguments")
            for match in _DEPS.finditer(text)
            if not _OLDEST.search(_last(_SECTION, text, match.start()))
        ]
    elif name.endswith((".yml", ".yaml")):
        parts += [match.span("arguments") for match in _CONDA_PIP.finditer(text)]
    for start, end in parts:
        yield from (match.span() for match in _REQUIREMENT.finditer(text, start, end))


def _last(heading: re.Pattern[str], text: str, end: int) -> str:
    """The name of the last heading before an offset; empty if there is none."""
    names = [match["name"] or "" for match in heading.finditer(text, 0, end)]
    return names[-1] if names else ""


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])
