"""uv's own words, as they are read for what they say of packages.

They quote a repository's requirements, however long: all here takes time in proportion to their length.
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

#: Of a release in uv's words (characters): name, extras, version range. What is longer is no release that
#: anybody publishes, and is not read.
MAX_RELEASE = 1_000

#: The name of the interpreter, as something that a file declares.
PYTHON = "python"

#: ``left{python_full_version < '3.9'}==1.0``: what was asked for under a condition.
#: A quoted value may hold a brace.
_CONDITION = lazy_pattern(r"""\{(?:'[^']*'|"[^"]*"|[^{}'"])*\}""")

#: One way to read any text: else a range that a repository has takes hours.
_CLAUSE = r"(?:===|[<>=!~]=|[<>])[\w.!+*]+"
_RELEASE = lazy_pattern(
    r"(?P<name>[A-Za-z0-9](?:[\w.-]{0,198}[A-Za-z0-9])?)(?:\[[^\]]*\])?"
    rf"(?P<spec>{_CLAUSE}(?:,{_CLAUSE})*)?",
    re.ASCII,
)


def one_line(output: str) -> str:
    """On one line, and without conditions: a release is named as it is elsewhere, and no text of a
    repository's is read as uv's."""
    return _CONDITION.sub("", " ".join(output.split()))


def release_before(line: str, end: int) -> tuple[str, str] | None:
    """Name and range (empty: any) of the release that the word before a place names, or None."""
    # One character more, so that the end of a longer word is not taken for all of it.
    return _release(line[max(0, end - MAX_RELEASE - 1) : end].rpartition(" ")[2])


def _release(word: str) -> tuple[str, str] | None:
    match = _RELEASE.fullmatch(word) if len(word) <= MAX_RELEASE else None
    return None if match is None else (match["name"], match["spec"] or "")


class _Requirement(NamedTuple):
    """``parent``: as uv's text names it, PROJECT for the project itself."""

    parent: str
    child: str
    spec: str


#: What uv takes for granted in one step; what follows "we can conclude" it derives.
_PREMISES = lazy_pattern(r"[Bb]ecause (.*?)(?:, we can conclude|$)")
_DEPENDS = lazy_pattern(r" (?:depends? on|requires?) ")
_SECOND = lazy_pattern(r" and (?=\S+(?:$| and |, ))")
#: The members, groups and extras that a project consists of.
_OWN = lazy_pattern(r"your (?:project|workspace) requires ([^,]*)")
_MEMBER = lazy_pattern(r"(?<!your )(?<!\S)[\w.-]+(?:\[[^\]]*\]|:\S+)?(?![^ ])")
#: What a message calls the project itself, whose own declaration is no parent's.
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

#: Causes that one refusal names.
_MAX_NAMED = 4


def blockers_in(
    output: str, place: Callable[[str], str] = lambda _name: "", but_for: Collection[str] = ()
) -> tuple[Blocker, ...]:
    """Return what uv's output blames; nothing if it names no known cause. ``place``: the file that declares
    a package, or ``PYTHON``. ``but_for``: packages that are to move: what they require is not to blame."""
    line = one_line(output)
    causes = (tuple(reader(line, but_for)) for reader in (_too_new, _pythons, _addresses))
    found = next(filter(None, causes), (*_conflicts(line, but_for), *_missing(line, but_for)))
    blockers = [it.model_copy(update={"file": place(_first(it.required_by, it))}) for it in found]
    registry = registry_blocker(line, "index", blockers[0].package if blockers else "")
    if registry is not None and (registry.status or not blockers):
        return (registry,)
    return tuple(blockers[:_MAX_NAMED])


def blamed(output: str, package: str) -> tuple[str, str] | None:
    """Return which parent, by which constraint, is to blame for a package; None: uv does not say."""
    asking = (it for it in _requirements(one_line(output)) if it.child == package and it.spec)
    return next(((_split(it.parent)[0], it.spec) for it in asking if it.parent != PROJECT), None)


def _first(required_by: str, blocker: Blocker) -> str:
    """Return the package whose declaration a blocker is about, or ``PYTHON``."""
    if blocker.kind is BlockerKind.RUNTIME:
        return PYTHON
    label = required_by if required_by not in {"", PROJECT} else blocker.package
    label = blocker.constraint if label == PROJECT else label
    return str(canonicalize_name(label.partition(" ")[0]))


def _too_new(line: str, _but_for: Collection[str]) -> Iterator[Blocker]:
    for it in _TOO_NEW.finditer(line):
        day = f" ({it['day']})" if it["day"] else ""
        label = f"{it['name']} {it['version'] or ''}".strip() + day
        rule = f"{it['rule']} {it['date']}"
        yield Blocker(kind=BlockerKind.AGE_RULE, package=label, constraint=rule)


def _pythons(line: str, _but_for: Collection[str]) -> Iterator[Blocker]:
    for it in _PYTHON.finditer(line):
        yield Blocker(
            kind=BlockerKind.RUNTIME,
            package=_label(it["label"]),
            constraint=f"Python {it['spec']}",
            required_by=f"the resolution is for Python {it['own']}",
        )


def _addresses(line: str, _but_for: Collection[str]) -> Iterator[Blocker]:
    if it := _ADDRESS.search(line):
        parent = _INCLUDED.search(line)
        by = f"{parent['name']} {parent['version']}" if parent else ""
        kind = BlockerKind.ADDRESS
        yield Blocker(kind=kind, package=it["name"], constraint=it["url"], required_by=by)


def _requirements(line: str) -> list[_Requirement]:
    found: list[_Requirement] = []
    own = {name for it in _OWN.findall(line) for name in _MEMBER.findall(it)}
    for premises in _PREMISES.findall(line):
        for between in _DEPENDS.finditer(premises):
            parent = release_before(premises, between.start())
            word = premises[: between.start()].rpartition(" ")[2]
            is_project = word in _PROJECT_ITSELF or ":" in word or word in own
            label = PROJECT if is_project or parent is None else "".join(parent)
            rest = premises[between.end() :]
            for text in (rest, *_SECOND.split(rest, maxsplit=1)[1:]):
                # A sentence may end with it.
                child = _release(text[: MAX_RELEASE + 1].partition(" ")[0].rstrip(".,;"))
                if child is None or child[0] == "Python":
                    continue
                name = str(canonicalize_name(child[0]))
                # A constraint, which uv adds to what a package requires itself.
                is_constraint = bool(found) and text != rest and found[-1].child == name
                found.append(_Requirement(PROJECT if is_constraint else label, name, child[1]))
    return found


def _conflicts(line: str, but_for: Collection[str]) -> Iterator[Blocker]:
    """Requirements of one package that exclude each other: those of other packages, else the project's."""
    every = _requirements(line)
    pins = {it.child: it.spec for it in every if it.spec.startswith("==") and it.parent == PROJECT}
    for name in dict.fromkeys(it.child for it in every):
        asking = dict.fromkeys(it for it in every if it.child == name and it.spec)
        own = [it for it in asking if it.parent == PROJECT]
        others = [it for it in asking if it not in own and _split(it.parent)[0] not in but_for]
        if len(asking) == 1 and not (others and name in but_for):
            continue
        for it in others or own:
            name_of, spec = _split(it.parent)
            parent = _label(name_of + (spec or pins.get(name_of, "")))
            label = PROJECT if it in own else parent
            constraint = f"{it.child} {it.spec}"
            yield Blocker(kind=BlockerKind.CONFLICT, package=label, constraint=constraint)


def _missing(line: str, _but_for: Collection[str]) -> Iterator[Blocker]:
    every = _requirements(line)

    def by(name: str, spec: str = "") -> str:
        asking = (it for it in every if it.child == name and spec in {"", it.spec})
        return next((PROJECT if it.parent == PROJECT else _label(it.parent) for it in asking), "")

    absent = [_split(it["label"]) for it in _NO_VERSION.finditer(line)]
    for name, spec in (_split(it["label"]) for it in _ONLY.finditer(line)):
        specs = (it.spec for it in every if it.child == name and it.spec)
        absent += [(name, it) for it in specs if not _overlap(spec, it)]
    for name, spec in absent:
        kind = BlockerKind.NOT_PUBLISHED
        yield Blocker(kind=kind, package=name, constraint=spec, required_by=by(name, spec))
    for it in _NO_PACKAGE.finditer(line):
        name = str(canonicalize_name(it["name"]))
        yield Blocker(
            kind=BlockerKind.REGISTRY,
            package=name,
            required_by=by(name),
            setting="index",
            status=HTTPStatus.NOT_FOUND,
        )
    for it in _NO_WHEEL.finditer(line):
        label, (name, _) = _label(it["label"]), _split(it["label"])
        yield Blocker(kind=BlockerKind.NOT_BUILT, package=label, required_by=by(name))


def _overlap(available: str, wanted: str) -> bool:
    """Does a bound of what is available satisfy a requirement?"""
    try:
        asked = SpecifierSet(wanted)
        return any(asked.contains(one.version, prereleases=True) for one in SpecifierSet(available))
    except (InvalidSpecifier, ValueError):
        return True


def _split(text: str) -> tuple[str, str]:
    match = _RELEASE.fullmatch(text)
    name = match["name"] if match else re.split(r"[<>=!~\[]", text)[0]
    return str(canonicalize_name(name)), (match["spec"] or "") if match else ""


def _label(text: str) -> str:
    """``name version`` of a release that is named exactly, else its name and range."""
    name, spec = _split(text)
    return f"{name} {spec.removeprefix('==')}".strip()
