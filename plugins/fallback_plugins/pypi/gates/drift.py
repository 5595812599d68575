"""Do the base commit's environment and the patched one differ in more than the patch moves?

Both are made on one day, but not at once: a release that came in between is in one of them alone. And one
of them may be there only on another Python, or by another step of the ladder. What fails beside such a
difference is not known to be the patch's doing, nor anything else's: a person's question (ADR-0077).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import Distribution

from packaging.utils import canonicalize_name

from fallback_audit.vocabulary import GateStatus
from fallback_plugins.pypi.gates.lacking import lacked_at_base
from fallback_plugins.pypi.installing.environment import Environment
from fallback_plugins.pypi.installing.plan import release
from fallback_plugins.pypi.surveying.survey import ECOSYSTEM
from fallback_plugins.shared.gates import drifting, gating
from fallback_tier.gate_ports import GateContext, GateVerdict

_NAME = re.compile(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?")

#: How a requirement begins, of metadata from before PEP 508 too.
_ASKED = re.compile(rf"(?P<name>{_NAME.pattern})\s*(?:\[(?P<extras>[^\]]*)\])?")

#: The extra with which a requirement counts.
_EXTRA = re.compile(r"""\bextra\s*==\s*["']([^"']+)["']""")

#: Distributions by canonical name.
InstalledByName = Mapping[str, Distribution]

#: Packages that a verdict's one sentence names.
_NAMED = 3


def beside_drift(project: Environment, judge: Callable[[], GateVerdict]) -> GateVerdict:
    """What ``judge`` says of a patched project. A failure that stands beside a difference which is not the
    patch's doing is undecided, and so is a pass whose failing tests had less at the base commit. Both are
    where what is installed became another meanwhile: its runs may have been on either. Raises as ``judge``
    and ``Environment.install`` do."""
    before = _contents(project, project.base)
    verdict = judge()
    if not gating.depends_on_setting(verdict):
        return verdict
    ours, base = _looked_at_again(project)
    if _contents(ours, base) != before:
        return drifting.beside_sets_made_anew(verdict)
    otherwise = ours.otherwise()
    if verdict.status is not GateStatus.FAILED and (lacked := lacked_at_base(ours, base)):
        otherwise = otherwise or f"that lacks {gating.some_of(lacked, _NAMED)}"
    if otherwise:
        return gating.beside_another_setting(verdict, otherwise)
    return drifting.beside_other_releases(verdict, drifted(ours, base))


def _looked_at_again(project: Environment) -> tuple[Environment, Environment]:
    """The patched tree's and the base commit's, as they are now."""
    ours = Environment(project.context, project.repo, project.folder)
    return ours, ours.base


def _contents(*trees: Environment) -> list[str]:
    return [tree.contents() for tree in trees]


def differing(
    ours: Environment, base: Environment
) -> tuple[InstalledByName, InstalledByName, set[str]]:
    """What is installed in both, and the packages of which it is not the same release. Raises as
    ``Environment.install`` does."""
    for tree in (ours, base):
        tree.install()
    here, there = ours.distributions(), base.distributions()
    names = {name for name in {*here, *there} if _version(here, name) != _version(there, name)}
    return here, there, names


def drifted(ours: Environment, base: Environment) -> tuple[str, ...]:
    """Packages of another release than at the base commit, and not by the patch.

    By the patch is what it names, what the advisory is about, what each tree's uv.lock pins, and what
    differs beside those that ask for it or that it asks for (``asking_in_use``). Raises as
    ``Environment.install`` does.
    """
    if ours.place == base.place:
        return ()
    here, there, moved = differing(ours, base)
    by_locks = {
        name for name in moved if _is_locked(ours, here, name) and _is_locked(base, there, name)
    }
    if moved == by_locks:
        return ()
    edges = [*asking_in_use(here, ours.lines), *asking_in_use(there, base.lines)]
    by_patch = {*by_locks, *_named_by_patch(ours.context), *_moved(ours, base)}
    return tuple(
        f"{name} ({_version(here, name)}, there {_version(there, name)})"
        for name in drifting.not_by_patch(moved, edges, by_patch)
    )


def _version(installed: InstalledByName, name: str) -> str:
    return installed[name].version if name in installed else "none"


def _is_locked(tree: Environment, installed: InstalledByName, name: str) -> bool:
    """Is it of the release that the tree's uv.lock pins, or in neither?"""
    if name in installed:
        return release(name, installed[name].version) in tree.pinned
    return bool(tree.pinned) and not any(pin.startswith(f"{name}==") for pin in tree.pinned)


def asking(installed: InstalledByName) -> Iterator[tuple[str, str]]:
    """Who asks for whom, whatever the condition."""
    for name, one in installed.items():
        for line in one.requires or ():
            if (asked := _NAME.match(line)) is not None:
                yield name, canonicalize_name(asked[0])


def asking_in_use(installed: InstalledByName, lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Who asks for whom, without extras that nobody asks for: packages publish as such what they are tested
    and documented with. ``lines``: what the project asks for. Every other condition counts as met; one on
    an extra that can't be read does not."""
    asked: dict[tuple[str, str], list[str]] = {}
    for name, one in installed.items():
        for line in one.requires or ():
            marker = line.partition(";")[2]
            for extra in _EXTRA.findall(marker) if "extra" in marker else ("",):
                asked.setdefault((name, canonicalize_name(extra)), []).append(line)
    waiting = [(name, "") for name in installed]
    waiting += [it for line in lines for it in _with_extras(line)]
    seen = {*waiting}
    while waiting:
        who = waiting.pop()
        for line in asked.get(who, ()):
            if (found := _ASKED.match(line)) is not None:
                yield who[0], canonicalize_name(found["name"])
            more = {*_with_extras(line)} - seen
            seen |= more
            waiting += more


def _with_extras(line: str) -> Iterator[tuple[str, str]]:
    """A requirement's package with each of the extras that it is asked for with."""
    if (found := _ASKED.match(line)) is not None:
        for extra in _NAME.findall(found["extras"] or ""):
            yield canonicalize_name(found["name"]), canonicalize_name(extra)


def _named_by_patch(context: GateContext) -> set[str]:
    """Every word of the lines that it changes, and the advisory's packages."""
    changed = (line for line in context.application.diff.splitlines() if line[:1] in {"+", "-"})
    words = {canonicalize_name(word) for line in changed for word in _NAME.findall(line)}
    return words | {canonicalize_name(name) for name in context.advisory.packages(ECOSYSTEM)}


def _moved(ours: Environment, base: Environment) -> set[str]:
    """What the lines ask for that one of the trees has alone; of a lock such as poetry.lock its pins."""
    lines = set(ours.lines) ^ set(base.lines)
    return {canonicalize_name(it[0]) for line in lines if (it := _NAME.match(line)) is not None}
