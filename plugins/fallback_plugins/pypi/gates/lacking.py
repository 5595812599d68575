"""Comparison of how a patched tree and its base commit are installed, and of what the patch causes.

What fails in another setting, or with more than the base commit has, is a person's question (ADR-0077).
Requirements files that contradict each other are installed in part, and so are pins without a wheel. Where
the patch moves a line that could not be had before either, the line as it is now is another one that can't.
"""

import re
from collections.abc import Callable

from packaging.utils import canonicalize_name

from fallback_audit.vocabulary import GateStatus
from fallback_plugins.pypi.installing.environment import Environment
from fallback_plugins.pypi.manifests.requirements import requirement_in
from fallback_plugins.pypi.uv_words import one_line
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.installed import Installed
from fallback_tier.gate_ports import GateVerdict

#: Packages that a verdict's one sentence names.
_NAMED = 3

#: uv's words for a release that is there, and can't be installed here without building it.
_NO_WHEEL = ("has no usable wheels", "has no wheels with a matching")


def beside_base(project: Environment, judge: Callable[[], GateVerdict]) -> GateVerdict:
    """Return what ``judge`` says of a patched project. If the base commit is installed in another setting,
    a failure is undecided, and so is a pass whose failing tests had less there. Raises as ``judge`` and
    ``Environment.install`` do."""
    verdict = judge()
    if not gating.depends_on_setting(verdict):
        return verdict
    otherwise = project.otherwise()
    if verdict.status is not GateStatus.FAILED:
        lacked = lacked_at_base(project, project.base)
        if lacked:
            otherwise = otherwise or f"that lacks {gating.some_of(lacked, _NAMED)}"
    return gating.beside_another_setting(verdict, otherwise)


def lacks_by_the_patch(ours: Environment, base: Environment) -> bool:
    """Less can be had, other than by a moved line that could not be had at the base commit either.

    Such a line is held against the base commit's again: by the file that it stands in, installed by itself,
    so that no other file contradicts it. Raises as ``Environment.install`` does.
    """
    here, there = ours.install(), base.install()
    if here.level is not there.level:
        return here.lacks_beside(there)
    before = {_package(line) for line, _ in there.declined}
    files: dict[str, None] = {}
    for line in _new(here, there):
        where = ours.declaring(line)
        if not where or _package(line) not in before:
            return True
        files |= dict.fromkeys(where)
    return any(_lacks(ours.alone(file).install(), base.alone(file).install()) for file in files)


def lacked_at_base(ours: Environment, base: Environment) -> list[str]:
    """Packages that could not be had at the base commit, and can be with the patch: as they are asked for,
    or at all. Raises as ``Environment.install`` does."""
    here, there = ({_package(line) for line, _ in tree.install().declined} for tree in (ours, base))
    come = ours.distributions().keys() - base.distributions().keys()
    return sorted(there - (here - come))


def _lacks(here: Installed, there: Installed) -> bool:
    if here.level is not there.level:
        return here.lacks_beside(there)
    return bool(_new(here, there))


def _new(here: Installed, there: Installed) -> list[str]:
    """Lines that can't be had here alone; none of a package without a wheel in either tree."""
    lines = {line for line, _ in there.declined}
    without = {_package(line) for line, why in there.declined if _is_without_wheel(line, why)}
    return [
        line
        for line, why in here.declined
        if line not in lines and not (_package(line) in without and _is_without_wheel(line, why))
    ]


def _is_without_wheel(line: str, why: str) -> bool:
    asked = requirement_in(line)
    if asked is None:
        return False
    release = re.escape(f"{asked.name}{asked.specifier}")  # no end of a longer name
    return re.search(rf"(?<![\w.-]){release} (?:{'|'.join(_NO_WHEEL)})", one_line(why)) is not None


def _package(line: str) -> str:
    """The package that a line asks for; of what is no requirement (a step's name) the whole."""
    asked = requirement_in(line)
    return line if asked is None else canonicalize_name(asked.name)
