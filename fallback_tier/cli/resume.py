"""``fallback-tier resume``: a fix that was interrupted goes on to the end that it would have had."""

import argparse
from contextlib import closing
from pathlib import Path

from pydantic import ValidationError
from rich.console import Console

from fallback_audit.errors import EvidenceError
from fallback_tier.advisory import Advisory
from fallback_tier.cli.fix import finish
from fallback_tier.cli.options import check_files, keys, record, state_dir
from fallback_tier.cli.progress import FixProgress
from fallback_tier.cli.remediation import line, safe
from fallback_tier.errors import InputError
from fallback_tier.gates.journal.history import read_history
from fallback_tier.gates.journal.holding import holding
from fallback_tier.gates.journal.inputs import FixInputs, Setup
from fallback_tier.gates.journal.resume import (
    TakenUp,
    check_base,
    check_gates,
    inputs_of,
    judges_only,
    take_up,
)
from fallback_tier.gates.trees.isolation import inspect_repository
from fallback_tier.gates.trees.worktrees import remove_leftovers
from fallback_tier.handover.delivery import check_output, deliver
from fallback_tier.handover.landing import complete
from fallback_tier.installed import as_found, look_at
from fallback_tier.wiring import Configuration, Services, open_services
from fallback_tier.wiring.trail import open_evidence, read_trail

#: Options that take the place of what the fix began with.
_OVERRIDES = (
    "model",
    "base_url",
    "script",
    "judge_model",
    "judge_base_url",
    "judge_script",
    "examples",
    "price",
)


def run(arguments: argparse.Namespace) -> int:
    """Go on with what the fix began with; the options say what is different now, keys are in the
    environment."""
    state = state_dir(arguments)
    settings = record(arguments)
    with closing(read_trail(state, settings)) as trail:
        inputs = inputs_of(trail, open_evidence(state, settings), arguments.fix_id)
        asks = not judges_only(trail, arguments.fix_id)
        is_reopened = read_history(trail, arguments.fix_id).current.reopened is not None
    if inputs.setup.several:
        return _go_on_with_several(inputs, arguments, is_reopened=is_reopened)
    output = arguments.output or inputs.setup.output
    if output:
        check_output(Path(output))
    setup = inputs.setup.model_copy(
        update={"output": output, "dry_run": arguments.dry_run or inputs.setup.dry_run}
    )
    repository = Path(arguments.repository) if arguments.repository else inputs.repository
    configured = _configuration(inputs, arguments, asks=asks)
    about = inputs.advisory.ecosystems
    with open_services(configured, asks=asks, ecosystems=about) as services:
        return go_on(
            arguments.fix_id,
            inputs.advisory,
            repository,
            services,
            setup,
            as_json=arguments.json,
        )


def _go_on_with_several(
    inputs: FixInputs, arguments: argparse.Namespace, *, is_reopened: bool
) -> int:
    """A part of a run over several advisories: that run goes on, and no model is asked."""
    fix_id, batch = arguments.fix_id, inputs.setup.batch_sha256
    if batch is None or is_reopened:
        alone = f"Run `fallback-tier fix` for {', '.join(inputs.advisory.ids)} alone."
        again = (
            "Run that `fallback-tier fix` again: recipes ask no model, so nothing is paid twice."
        )
        raise InputError(
            f"Fix {fix_id} is one part of a run over several advisories, whose patches are delivered "
            "together.",
            next_step=alone if is_reopened else again,
        )
    if arguments.output:
        check_output(Path(arguments.output))
    from fallback_tier.cli.fix_several import go_on_with_several

    configured = _configuration(inputs, arguments, asks=False)
    with open_services(configured, asks=False, ecosystems=inputs.advisory.ecosystems) as services:
        return go_on_with_several(batch, services, arguments)


def go_on(
    fix_id: str,
    advisory: Advisory,
    repository: Path,
    services: Services,
    setup: Setup,
    *,
    as_json: bool,
) -> int:
    """The rest of a fix: its gates, its delivery, or only the news that it had ended."""
    with holding(services.configuration.state_dir, fix_id):
        taken = take_up(services.audit, services.evidence, fix_id, advisory=advisory)
        if taken.result is not None:
            return _ended(taken, advisory, repository, services, setup, as_json=as_json)
        services.check_raised(taken.raised)
        _check_whose(taken, services)
        repo = look_at(repository, services.clients, services.configuration.settings)
        check_base(taken, repo.base_commit, fix_id)
        inputs = services.inputs_on(
            repo,
            advisory,
            fix_id=fix_id,
            gate_transition_id=taken.gate_transition_id,
            affected=taken.affected,
            makes=taken.state.recorded is None,
        )
        with FixProgress(Console(stderr=True, quiet=as_json)) as progress:
            runner = services.gate_runner(
                advisory, progress, setup, repo=inputs.repo_ctx, tell=progress.tell
            )
            check_gates(taken, runner.gate_names, runner.setup.configuration, fix_id)
            result = runner.resume(inputs.advisory, inputs.repo_ctx, inputs.recipe_selection, taken)
        repo = inputs.repo_ctx
        return finish(result, advisory, repo, services, setup, deliver, as_json=as_json)


def _check_whose(taken: TakenUp, services: Services) -> None:
    """Decided once: raises InputError where the options say now that somebody else's code is affected."""
    now = services.configuration.settings.whose_code
    if now is not None and taken.affected is not None and now is not taken.affected.code:
        raise InputError(
            f"The fix began as one of {taken.affected.code} code, and the options say {now} now.",
            next_step="Resume it without them, or start a new fix.",
        )


def _ended(
    taken: TakenUp,
    advisory: Advisory,
    repository: Path,
    services: Services,
    setup: Setup,
    *,
    as_json: bool,
) -> int:
    """Its end is on record. What may be missing is the delivery of a proved patch."""
    if taken.result is None:
        raise AssertionError("an ended fix has a result")
    fix_id = taken.result.fix_id
    remove_leftovers(services.configuration.state_dir)
    facts = inspect_repository(repository, services.clients)
    repo = as_found(facts, services.configuration.settings).model_copy(update={"fix_id": fix_id})
    check_base(taken, repo.base_commit, fix_id)
    line(
        Console(stderr=True, quiet=as_json),
        f"fix {safe(fix_id)} has ended ({taken.after}): no gate is run again",
    )
    how = taken.delivered or complete
    return finish(taken.result, advisory, repo, services, setup, how, as_json=as_json)


def _configuration(
    inputs: FixInputs, arguments: argparse.Namespace, *, asks: bool
) -> Configuration:
    """``asks`` False: only gates are run, so that neither a script nor a memory need be where it was."""
    recorded = dict(inputs.setup.configuration)
    given = {name: value for name in _OVERRIDES if (value := getattr(arguments, name)) is not None}
    facts = {**recorded, **given, "state_dir": state_dir(arguments), "record": record(arguments)}
    try:
        before = Configuration.model_validate(facts)
        budget = before.budget.model_copy(
            update={
                name: cap
                for name, cap in (
                    ("usd_per_day", arguments.max_usd_per_day),
                    ("tokens_per_day", arguments.max_tokens_per_day),
                )
                if cap is not None
            }
        )
        configuration = before.model_copy(
            update={"budget": budget, **keys(before.base_url, before.judge_base_url)}
        )
    except ValidationError as error:
        raise EvidenceError(
            f"What fix {arguments.fix_id} began with is no configuration as this version reads it.",
            next_step="Resume with the version that started the fix, or start a new one.",
        ) from error
    if asks:
        check_files(configuration)
    return configuration
