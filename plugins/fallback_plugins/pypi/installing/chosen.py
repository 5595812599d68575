"""The Python that a fix's runs were moved to, because its proof could not start on the first (ADR-0085).

Kept in the cache by fix and base commit, so that every gate and every attempt, also of a resumed fix, runs
on the same one.
"""

from collections.abc import Sequence
from pathlib import Path

from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.base_runs import keep, kept
from fallback_tier.gate_ports import GateContext

_FOLDER = "pythons"


def of_fix(context: GateContext, suited: Sequence[Path]) -> tuple[Path, ...]:
    """Those of ``suited`` that this fix's runs may be on: the chosen one; all where none was chosen."""
    name = kept(_place(context))
    return tuple(python for python in suited if python.name == name) or tuple(suited)


def choose(context: GateContext, python: Path | None) -> None:
    """From now on this fix's runs are on this Python; None: on any, ours first."""
    if python is None:
        _place(context).unlink(missing_ok=True)
    else:
        keep(_place(context), python.name)


def _place(context: GateContext) -> Path:
    return (
        context.cache / _FOLDER / gating.content_key(context.repo.fix_id, context.repo.base_commit)
    )
