"""Parsers of uv's messages, for what they say about packages.

The messages quote a repository's requirements, however long. Everything here takes time in proportion to
their length.
"""

import re
from collections.abc import Callable, Collection, Iterator
from http import HTTPStatus
from typing import NamedTuple

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from fallback_audit.vocabulary import BlockerKind
from fallback_plugins.shared.ladder import PROJECT, registry_blocker
from fallback_tier.lazy_patterns import lazy_pattern
from fallback_tier.outcome import Blocker

#: The most characters of a release in uv's messages: name, extras and version range. No published release
#: is longer, and longer text is not parsed.
MAX_RELEASE = 1_000

#: The label of the interpreter among what a file declares.
PYTHON = "python"

#: Matches the condition in ``left{python_full_version < '3.9'}==1.0``. A quoted value may hold a brace.
_CONDITION = lazy_pattern(r"""\{(?:'[^']*'|"[^"]*"|[^{}'"])*\}""")

#: Can match a text in one way only; otherwise a range written by a repository could take hours.
_CLAUSE = r"(?:===|[<>=!~]=|[<>])[\w.!+*]+"
_RELEASE = lazy_pattern(
    r"(?P<name>[A-Za-z0-9](?:[\w.-]{0,198}[A-Za-z0-9])?)(?:\[[^\]]*\])?"
    rf"(?P<spec>{_CLAUSE}(?:,{_CLAUSE})*)?",
    re.ASCII,
)


def one_line(output: str) -> str:
    """Return uv's output on one line and without conditions, so that releases look the same everywhere and
    a repository's text is not read as uv's."""
    return _CONDITION.sub("", " ".join(output.split()))


def release_before(line: str, end: int) -> tuple[str, str] | None:
    """Return the name and range (empty: any) of the release in the word that ends at ``end``, or None."""
    # One character more, so that the end of a longer word is not taken for the whole word.
    return _release(line[max(0, end - MAX_RELEASE - 1) : end].rpartition(" ")[2])


def _release(word: str) -> tuple[str, str] | None:
    match = _RELEASE.fullmatch(word) if len(word) <= MAX_RELEASE else None
    return None if match is None else (match["name"], match["spec"] or "")


class _Requirement(NamedTuple):
    """A requirement in uv's message. ``parent``: as uv names it, or PROJECT for the project itself."""

    parent: str
    child: str
    spec: str


#: Matches the premises of one step of uv's reasoning; what follows "we can conclude" is derived from them.
_PREMISES = lazy_pattern(r"[Bb]ecause (.*?)(?:, we can conclude|$)")
_DEPENDS = lazy_pattern(r" (?:depends? on|requires?) ")
_SECOND = lazy_pattern(r" and (?=\S+(?:$| and |, ))")
#: Matches a project's own members, groups and extras.
_OWN = lazy_pattern(r"your (?:project|workspace) requires ([^,]*)")
_MEMBER = lazy_pattern(r"(?<!your )(?<!\S)[\w.-]+(?:\[[^\]]*\]|:\S+)?(?![^ ])")
#: Words for the project itself, which is not a package that requires something.
_PROJECT_ITSELF = frozenset({"project", "workspace", "you"})
_PYTHON = lazy_pattern(
    r"Python version \((?P<own>[^)]*)\) does not satisfy Python\S+"
    r" and (?P<label>\S+) depends on Python(?P<spec>\S+?),"
)
_NO_VERSION = lazy_pattern(r"there (?:is|are) no versions? of (?P<label>[^\s,]+)")
_ONLY = lazy_pattern(r"only (?P<label>[^\s,]+) (?:is|are) available")
_NO_PACKAGE = lazy_pattern(r"(?<!\S)(?P<name>[\w.-]+) was not found in the package registry")
_NO_WHEEL = lazy_pattern(r"(?<!\S)(?P<label>\S+) has no (?:usable )?wheels")
_TOO_NEW = lazy_pattern(
    r"`(?P<name>[^`]+)` was filtered by `(?P<rule>[^`]+)` to only include packages uploaded before"
    r" (?P<date>\S+)\.(?: The requested version, v(?P<version>[^,\s]+), was published at (?P<day>\S+)\.)?"
)
_ADDRESS = lazy_pattern(
    r"Package `(?P<name>[^`]+)` was included as a URL dependency.*?`\S+ @ (?P<url>\S+)`"
)
_INCLUDED = lazy_pattern(r"hint: `(?P<name>[^`]+)` \(v(?P<version>[^)]+)\) was included because")

#: The most causes that one refusal names.
_MAX_NAMED = 4


def blockers_in(
    output: str, file_of: Callable[[str], str] = lambda _name: "", but_for: Collection[str] = ()
) -> tuple[Blocker, ...]:
    """Return the causes in uv's output; empty if it names no known one. ``file_of``: returns the file that
    declares a package, or ``PYTHON``. ``but_for``: packages that are to move, whose requirements don't
    count as causes."""
    line = one_line(output)
    causes = (tuple(reader(line, but_for)) for reader in (_too_new, _pythons, _addresses))
    unplaced = next(filter(None, causes), (*_conflicts(line, but_for), *_missing(line, but_for)))
    blockers = [
        blocker.model_copy(update={"file": file_of(_first(blocker.required_by, blocker))})
        for blocker in unplaced
    ]
    registry = registry_blocker(line, "index", blockers[0].package if blockers else "")
    if registry is not None and (registry.status or not blockers):
        return (registry,)
    return tuple(blockers[:_MAX_NAMED])


def blamed(output: str, package: str) -> tuple[str, str] | None:
    """Return the parent that constrains a package, and its constraint; None if uv names none."""
    requirements = (
        requirement
        for requirement in _requirements(one_line(output))
        if requirement.child == package and requirement.spec
    )
    return next(
        (
            (_split(requirement.parent)[0], requirement.spec)
            for requirement in requirements
            if requirement.parent != PROJECT
        ),
        None,
    )


def _first(required_by: str, blocker: Blocker) -> str:
    """Return the package whose declaration a blocker is about, or ``PYTHON``."""
    if blocker.kind is BlockerKind.RUNTIME:
        return PYTHON
    label = required_by if required_by not in {"", PROJECT} else blocker.package
    label = blocker.constraint if label == PROJECT else label
    return str(canonicalize_name(label.partition(" ")[0]))


def _too_new(line: str, _but_for: Collection[str]) -> Iterator[Blocker]:
    for match in _TOO_NEW.finditer(line):
        day = f" ({match['day']})" if match["day"] else ""
        label = f"{match['name']} {match['version'] or ''}".strip() + day
        rule = f"{match['rule']} {match['date']}"
        yield Blocker(kind=BlockerKind.AGE_RULE, package=label, constraint=rule)


def _pythons(line: str, _but_for: Collection[str]) -> Iterator[Blocker]:
    for match in _PYTHON.finditer(line):
        yield Blocker(
            kind=BlockerKind.RUNTIME,
            package=_label(match["label"]),
            constraint=f"Python {match['spec']}",
            required_by=f"the resolution is for Python {match['own']}",
        )


def _addresses(line: str, _but_for: Collection[str]) -> Iterator[Blocker]:
    if match := _ADDRESS.search(line):
        parent = _INCLUDED.search(line)
        by = f"{parent['name']} {parent['version']}" if parent else ""
        kind = BlockerKind.ADDRESS
        yield Blocker(kind=kind, package=match["name"], constraint=match["url"], required_by=by)


def _requirements(line: str) -> list[_Requirement]:
    requirements: list[_Requirement] = []
    members = {name for listing in _OWN.findall(line) for name in _MEMBER.findall(listing)}
    for premises in _PREMISES.findall(line):
        for verb in _DEPENDS.finditer(premises):
            parent = release_before(premises, verb.start())
            word = premises[: verb.start()].rpartition(" ")[2]
            is_project = word in _PROJECT_ITSELF or ":" in word or word in members
            label = PROJECT if is_project or parent is None else "".join(parent)
            rest = premises[verb.end() :]
            for text in (rest, *_SECOND.split(rest, maxsplit=1)[1:]):
                # The release may end a sentence.
                child = _release(text[: MAX_RELEASE + 1].partition(" ")[0].rstrip(".,;"))
                if child is None or child[0] == "Python":
                    continue
                name = str(canonicalize_name(child[0]))
                # uv appends a constraint to what the package itself requires.
                is_constraint = (
                    bool(requirements) and text != rest and requirements[-1].child == name
                )
                requirements.append(
                    _Requirement(PROJECT if is_constraint else label, name, child[1])
                )
    return requirements


def _conflicts(line: str, but_for: Collection[str]) -> Iterator[Blocker]:
    """Yield the requirements on one package that exclude each other: those of other packages, or if there
    are none, the project's."""
    requirements = _requirements(line)
    pins = {
        requirement.child: requirement.spec
        for requirement in requirements
        if requirement.spec.startswith("==") and requirement.parent == PROJECT
    }
    for name in dict.fromkeys(requirement.child for requirement in requirements):
        same_package = dict.fromkeys(
            requirement
            for requirement in requirements
            if requirement.child == name and requirement.spec
        )
        by_project = [requirement for requirement in same_package if requirement.parent == PROJECT]
        by_others = [
            requirement
            for requirement in same_package
            if requirement not in by_project and _split(requirement.parent)[0] not in but_for
        ]
        if len(same_package) == 1 and not (by_others and name in but_for):
            continue
        for requirement in by_others or by_project:
            parent_name, spec = _split(requirement.parent)
            parent = _label(parent_name + (spec or pins.get(parent_name, "")))
            label = PROJECT if requirement in by_project else parent
            constraint = f"{requirement.child} {requirement.spec}"
            yield Blocker(kind=BlockerKind.CONFLICT, package=label, constraint=constraint)


def _missing(line: str, _but_for: Collection[str]) -> Iterator[Blocker]:
    requirements = _requirements(line)

    def by(name: str, spec: str = "") -> str:
        matching = (
            requirement
            for requirement in requirements
            if requirement.child == name and spec in {"", requirement.spec}
        )
        return next(
            (
                PROJECT if requirement.parent == PROJECT else _label(requirement.parent)
                for requirement in matching
            ),
            "",
        )

    absent = [_split(match["label"]) for match in _NO_VERSION.finditer(line)]
    for name, spec in (_split(match["label"]) for match in _ONLY.finditer(line)):
        specs = (
            requirement.spec
            for requirement in requirements
            if requirement.child == name and requirement.spec
        )
        absent += [(name, wanted_spec) for wanted_spec in specs if not _overlap(spec, wanted_spec)]
    for name, spec in absent:
        kind = BlockerKind.NOT_PUBLISHED
        yield Blocker(kind=kind, package=name, constraint=spec, required_by=by(name, spec))
    for match in _NO_PACKAGE.finditer(line):
        name = str(canonicalize_name(match["name"]))
        yield Blocker(
            kind=BlockerKind.REGISTRY,
            package=name,
            required_by=by(name),
            setting="index",
            status=HTTPStatus.NOT_FOUND,
        )
    for match in _NO_WHEEL.finditer(line):
        label, (name, _) = _label(match["label"]), _split(match["label"])
        yield Blocker(kind=BlockerKind.NOT_BUILT, package=label, required_by=by(name))


def _overlap(available: str, wanted: str) -> bool:
    """Return whether any bound of the available range satisfies a requirement; True if one can't be
    read."""
    try:
        wanted_set = SpecifierSet(wanted)
        return any(
            wanted_set.contains(clause.version, prereleases=True)
            for clause in SpecifierSet(available)
        )
    except (InvalidSpecifier, ValueError):
        return True


def _split(text: str) -> tuple[str, str]:
    match = _RELEASE.fullmatch(text)
    name = match["name"] if match else re.split(r"[<>=!~\[]", text)[0]
    return str(canonicalize_name(name)), (match["spec"] or "") if match else ""


def _label(text: str) -> str:
    """Return ``name version`` of a release that is named exactly, otherwise its name and range."""
    name, spec = _split(text)
    return f"{name} {spec.removeprefix('==')}".strip()
