"""A declaration raised to another version, as text: nothing but the version's span changes."""

import re
from dataclasses import dataclass

from packaging.version import Version

from fallback_plugins.pypi.requirements import Clause, Declaration

#: From this many blanks on, a comment was put into a column, and stays there.
_ALIGNED = 3

_BLANKS_BEFORE_COMMENT = re.compile(r" +(?=#)")


@dataclass(frozen=True)
class Edit:
    """Replace the text between two offsets."""

    start: int
    end: int
    new: str


def edits_for(declaration: Declaration, version: str) -> tuple[Edit, ...] | None:
    """The edits that raise a declaration to ``version``; None where none would admit it.

    A pin moves; else every lower bound below the version does. Other clauses (``<2``, ``!=1.5``)
    stay, so a declaration that excludes the version is not one to be raised.
    """
    clauses = (declaration.pin,) if declaration.pin else _low_floors(declaration, version)
    edits = tuple(edit for clause in clauses for edit in _edits(clause, version))
    moved = {clause.start for clause in clauses}
    kept = tuple(clause for clause in declaration.clauses if clause.start not in moved)
    return edits if edits and Declaration(kept).admits(version) else None


def apply_edits(text: str, edits: tuple[Edit, ...]) -> str:
    """The text after the edits; a comment in a column of its own keeps its column."""
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        tail = _realigned(text[edit.end :], len(edit.new) - (edit.end - edit.start))
        text = text[: edit.start] + edit.new + tail
    return text


def _low_floors(declaration: Declaration, version: str) -> tuple[Clause, ...]:
    wanted = Version(version)
    return tuple(clause for clause in declaration.floors if Version(clause.version) < wanted)


def _edits(clause: Clause, version: str) -> tuple[Edit, ...]:
    moved = Edit(clause.start, clause.end, version)
    if clause.operator == ">":
        return Edit(clause.operator_start, clause.operator_start + 1, ">="), moved
    if clause.operator == "~=":
        return (Edit(clause.start, clause.end, _compatible(clause.version, version)),)
    return (moved,)


def _compatible(old: str, version: str) -> str:
    """``~=`` keeps its number of components, since the last but one says how far it reaches."""
    kept, wanted = len(Version(old).release), Version(version)
    release = wanted.release
    if len(release) < kept:
        return ".".join(map(str, (*release, *(0,) * (kept - len(release)))))
    if len(release) == kept:
        return version
    return ".".join(map(str, release[:kept])) + f",>={version}"


def _realigned(tail: str, grown: int) -> str:
    match = _BLANKS_BEFORE_COMMENT.search(re.split(r"[\r\n]", tail, maxsplit=1)[0])
    if match is None or len(match[0]) < _ALIGNED:
        return tail
    blanks = max(2, len(match[0]) - grown)
    return tail[: match.start()] + " " * blanks + tail[match.end() :]
