"""``fallback-tier serve --demo``: the portal over an audit trail with questions to decide.

The fixes are real, with real gates in the sandbox; only the model is scripted, with the plans below. So the
audit trail is what any service's would be, and records of each answer that it was scripted.
"""

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fallback_plugins.messages_api.scripted import ScriptedModel
from fallback_tier.advisory import load_advisory
from fallback_tier.budget.meter import BudgetLimits
from fallback_tier.cli.output import say
from fallback_tier.cli.serve import check_extra
from fallback_tier.cli.serve import run as serve
from fallback_tier.demo.projects import copy_project, flaw_test, shipped
from fallback_tier.fix.open_fix import run_fix
from fallback_tier.fix.parts import fix_parts
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.wiring import Configuration, open_services
from fallback_tier.wiring.trail import RecordSettings

_ADVISORY = "advisories/DEMO-2026-0002.json"

_UNLIMITED = BudgetLimits()

#: A call would exceed this at once.
_NO_TOKENS = 1_000


def _plan(new: str, why: str) -> dict[str, Any]:
    """Return a model's answer: one edit of the function that passes a value to eval."""
    edit = {"path": "knobfile.py", "old": "    return eval(text.strip())", "new": f"    {new}"}
    return {"action": "source_edit", "edits": [edit], "rationale": why, "citations": []}


@dataclass(frozen=True)
class Case:
    """A repository, its model's answers, and the result."""

    repository: str
    comes: str
    answers: Sequence[dict[str, Any]]
    budget: BudgetLimits = _UNLIMITED
    proof: bool = False


_NONE = (
    _plan("return None", "No value is evaluated."),
    _plan("return (lambda: None)()", "No value is evaluated any more."),
    _plan("return [None][0]", "Whatever stands there, nothing is evaluated."),
)

CASES = (
    Case(
        "settings-service",
        "escalated: no retry is left",
        (
            _plan("return text.strip()", "The text itself is the value."),
            _plan("return int(text)", "Values are numbers."),
            _plan("return [text.strip()]", "A value is a list with one text."),
            _plan("return {'value': text.strip()}", "A value has a name."),
        ),
    ),
    Case("billing", "escalated: the same failure came back", _NONE),
    Case("reports", "escalated: the same failure came back", _NONE),
    Case("intranet", "escalated: the model gives no answer", ()),
    Case("archive", "escalated: at its budget", (), BudgetLimits(tokens_per_fix=_NO_TOKENS)),
    Case(
        "shop",
        "verified: a test of the flaw passes",
        (
            _plan(
                "return ast.literal_eval(text.strip())",
                "ast.literal_eval of the standard library reads literals, and runs nothing.",
            ),
        ),
        proof=True,
    ),
)


def run(arguments: argparse.Namespace) -> int:
    """Make the audit trail, then serve it until a signal. Without ``--state-dir`` it is removed then."""
    check_extra()
    state_dir = arguments.state_dir
    root = Path(tempfile.mkdtemp(prefix="fallback-tier-demo-"))
    state = Path(state_dir) if state_dir else root / "state"
    keys = arguments.keys or str(root / "keys")
    try:
        for number, case in enumerate(CASES, start=1):
            say(f"{number} of {len(CASES)}: a fix in {case.repository} … ({case.comes})")
            play(case, root / "repositories", state, Path(keys))
        say("Sign in at /portal/ with the key below; the queue asks you what to do.")
        arguments.state_dir, arguments.keys = str(state), keys
        return serve(arguments)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def play(case: Case, repositories: Path, state: Path, keys: Path) -> None:
    """Run one fix to its end."""
    clients = SubprocessClients()
    repository = repositories / case.repository
    repository.parent.mkdir(parents=True, exist_ok=True)
    copy_project("retry", repository, clients)
    with shipped(_ADVISORY) as path:
        advisory = load_advisory(path)
    configuration = Configuration(
        state_dir=state,
        record=RecordSettings(keys=keys),
        budget=case.budget,
        proof=flaw_test("retry.py") if case.proof else None,
    )
    with open_services(configuration, author=ScriptedModel(case.answers)) as services:
        inputs = services.inputs(advisory, repository, fix_id=f"demo-{case.repository}")
        parts = fix_parts(services, advisory, lambda _: None, repo=inputs.repo_ctx)
        run_fix(parts, inputs.advisory, inputs.repo_ctx, inputs.recipe_selection)
