"""A declaration raised to another version, as text: nothing but versions and their operators change."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from fallback_plugins.pypi.manifests.requirements import (
    Clause,
    Declaration,
    at_least,
    poetry_specifier_in,
    specifier_in,
)

#: From this many blanks on, a comment was put into a column, and stays there.
_ALIGNED = 3

_BLANKS_BEFORE_COMMENT = re.compile(r" +(?=#)")

#: Upper bounds: they move with the version where they would exclude it.
_BOUNDS = frozenset({"<", "<="})

#: Operators of Poetry's own grammar.
_POETRYS_OWN = frozenset({"^", "~", "=", ""})

_RELEASE = re.compile(r"v?(?:\d+!)?(?P<release>\d+(?:\.\d+)*)")


@dataclass(frozen=True)
class Edit:
    """Replace the text between two offsets."""

    start: int
    end: int
    new: str


def edits_for(declaration: Declaration, version: str) -> tuple[Edit, ...] | None:
    """The edits that raise a declaration to ``version``; None where none would admit it.

    A pin moves; else every lower bound below the version does, and each upper bound that excludes it, in
    the style that it is written in (``>=1.0,<2.0`` to 2.1: ``>=2.1,<3.0``; ``==1.*``: ``==2.*``). Other
    clauses (``!=1.5``) stay, so a declaration whose exclusion names the version can't be raised.
    """
    moved = tuple(clause for clause in declaration.clauses if _moves(clause, declaration, version))
    edits = tuple(edit for clause in moved for edit in _edits(clause, version))
    kept = (clause for clause in declaration.clauses if clause not in moved)
    fits = all(clause.admits(version) for clause in kept) and all(
        _after(clause, _edits(clause, version)).admits(_labelled(clause, version))
        for clause in moved
    )
    return edits if edits and fits else None


def _after(clause: Clause, edits: tuple[Edit, ...]) -> Declaration:
    """What one comparison says after its edits."""
    origin = clause.operator_start
    text = clause.operator.ljust(clause.start - origin) + clause.version
    moved = tuple(Edit(edit.start - origin, edit.end - origin, edit.new) for edit in edits)
    read = poetry_specifier_in if clause.operator in _POETRYS_OWN else specifier_in
    return read(apply_edits(text, moved))


def apply_edits(text: str, edits: tuple[Edit, ...]) -> str:
    """The text after the edits; a comment in a column of its own keeps its column."""
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        tail = _realigned(text[edit.end :], len(edit.new) - (edit.end - edit.start))
        text = text[: edit.start] + edit.new + tail
    return text


def hash_edit(text: str, declaration: Declaration, hashes: Sequence[str]) -> Edit:
    """The edit that puts these hashes (``sha256:…``) in the place of the declaration's own.

    What stands between two of them (a continuation, its indentation) is kept; the order is the sorted
    one, as the compilers write it.
    """
    spans = declaration.hashes
    start, end = spans[0][0], spans[-1][1]
    if len(spans) > 1:
        between = text[spans[0][1] : spans[1][0]]
    else:
        head = text[:start].rstrip(" \t\\\r\n")
        between = text[len(head) : start]
    return Edit(start, end, between.join(f"--hash={value}" for value in sorted(hashes)))


def _moves(clause: Clause, declaration: Declaration, version: str) -> bool:
    if clause is declaration.pin:
        return True
    wanted = Version(version)
    if clause.operator in _BOUNDS:
        return not clause.admits(version)
    if clause.is_wildcard and clause.operator != "!=":
        return not clause.admits(version) and Version(clause.version[:-2]) < wanted
    return (
        declaration.pin is None
        and clause in declaration.floors
        and Version(clause.version) < wanted
    )


def _edits(clause: Clause, version: str) -> tuple[Edit, ...]:
    if clause.operator == ">":
        raised = Edit(clause.operator_start, clause.operator_start + 1, ">=")
        return raised, Edit(clause.start, clause.end, at_least(version))
    new = _labelled(clause, version)
    if clause.operator == "~=":
        new = _compatible(clause.version, version)
    elif clause.operator == "<":
        new = _bound_above(clause.version, version)
    elif clause.is_wildcard:
        new = _wildcard(clause.version, version)
    elif clause.operator == "~" and "." not in clause.version:
        # ``~1`` reaches to 2, ``~1.4`` only to 1.5.
        return (
            Edit(clause.operator_start, clause.operator_start + 1, ">="),
            Edit(clause.start, clause.end, f"{new},<{Version(version).major + 1}"),
        )
    return (Edit(clause.start, clause.end, new),)


def _labelled(clause: Clause, version: str) -> str:
    """The version as a clause can state it: with a local label (``2.5+cpu``) where a pin has one."""
    has_label = clause.pep440.startswith("==") and "+" in clause.version
    return version if has_label else at_least(version)


def _compatible(old: str, version: str) -> str:
    """``~=`` keeps its number of components, since the last but one says how far it reaches."""
    kept, wanted = len(Version(old).release), Version(version)
    release = wanted.release
    if len(release) < kept:
        filled = (*release, *(0,) * (kept - len(release)))
        return _epoch(version) + ".".join(map(str, filled))
    if len(release) == kept:
        return wanted.public
    return _epoch(version) + ".".join(map(str, release[:kept])) + f",>={wanted.public}"


def _bound_above(old: str, version: str) -> str:
    """``<`` moved above the version: the same component is counted on, as many are written."""
    match = _RELEASE.match(old)
    if match is None:
        raise InvalidVersion(old)
    parts = [int(part) for part in match["release"].split(".")]
    place = max((at for at, part in enumerate(parts) if part), default=0)
    release = (*Version(version).release, *(0,) * len(parts))
    moved = (*release[:place], release[place] + 1, *(0,) * (len(parts) - place - 1))
    return _epoch(version) + ".".join(map(str, moved)) + old[match.end() :]


def _wildcard(old: str, version: str) -> str:
    kept = old.count(".")
    release = (*Version(version).release, *(0,) * kept)
    return _epoch(version) + ".".join(map(str, release[:kept])) + ".*"


def _epoch(version: str) -> str:
    epoch = Version(version).epoch
    return f"{epoch}!" if epoch else ""


def _realigned(tail: str, grown: int) -> str:
    match = _BLANKS_BEFORE_COMMENT.search(re.split(r"[\r\n]", tail, maxsplit=1)[0])
    if match is None or len(match[0]) < _ALIGNED:
        return tail
    blanks = max(2, len(match[0]) - grown)
    return tail[: match.start()] + " " * blanks + tail[match.end() :]
