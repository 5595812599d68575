"""``fallback-tier resume``: continue an interrupted fix to the end that it would have had."""

import argparse
from contextlib import closing
from pathlib import Path

from pydantic import ValidationError

from fallback_audit.errors import EvidenceError
from fallback_tier.cli.fix.command import finish
from fallback_tier.cli.options import NO_SANDBOX, check_files, keys, record, state_dir
from fallback_tier.cli.progress import watch_of
from fallback_tier.fix.delivery import Delivery
from fallback_tier.fix.fixer import Fixer
from fallback_tier.fix.journal.holding import resumable
from fallback_tier.fix.journal.inputs import FixInputs
from fallback_tier.fix.journal.recorded_fix import RecordedFix
from fallback_tier.wiring import Configuration, open_services
from fallback_tier.wiring.trail import open_evidence, read_trail

#: Options that replace what the fix began with.
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
    """Continue with what the fix began with; the options state what is different now, and keys are in the
    environment. Raises SettingMissingError: the fix stays as it is."""
    fix_id, state, settings = arguments.fix_id, state_dir(arguments), record(arguments)
    with closing(read_trail(state, settings)) as trail:
        recorded = RecordedFix(trail, open_evidence(state), fix_id)
        recorded.check_not_abandoned()
        inputs, judges_only = recorded.inputs, recorded.judges_only
    ecosystems, asks = inputs.advisory.ecosystems, not (inputs.setup.several or judges_only)
    with resumable(fix_id):
        configured = _configuration(inputs, arguments, asks=asks)
        opened = open_services(configured, asks=asks, ecosystems=ecosystems)
    with opened as services:
        fixed = Fixer(services, watch_of(arguments)).resume(
            fix_id,
            repository=Path(arguments.repository) if arguments.repository else None,
            delivery=Delivery(
                dry_run=arguments.dry_run,
                output=Path(arguments.output) if arguments.output else None,
            ),
        )
        return finish(fixed, services, as_json=arguments.json)


def _configuration(
    inputs: FixInputs, arguments: argparse.Namespace, *, asks: bool
) -> Configuration:
    """Return the recorded configuration with the options of this run. ``asks`` False: only gates are run,
    so that neither a script nor a memory has to exist."""
    recorded = dict(inputs.setup.configuration)
    overrides = {
        name: value for name in _OVERRIDES if (value := getattr(arguments, name)) is not None
    }
    if arguments.no_sandbox:
        overrides["sandbox_waiver"] = NO_SANDBOX
    facts = {
        **recorded,
        **overrides,
        "state_dir": state_dir(arguments),
        "record": record(arguments),
    }
    try:
        overridden = Configuration.model_validate(facts)
        budget = overridden.budget.model_copy(
            update={
                name: cap
                for name, cap in (
                    ("usd_per_day", arguments.max_usd_per_day),
                    ("tokens_per_day", arguments.max_tokens_per_day),
                )
                if cap is not None
            }
        )
        hosts = tuple(dict.fromkeys((*overridden.settings.allow_hosts, *arguments.allow_host)))
        configuration = overridden.model_copy(
            update={
                "budget": budget,
                "settings": overridden.settings.model_copy(update={"allow_hosts": hosts}),
                **keys(overridden.base_url, overridden.judge_base_url),
            }
        )
    except ValidationError as error:
        raise EvidenceError(
            f"The configuration that fix {arguments.fix_id} began with can't be read by this version.",
            next_step="Resume with the version that started the fix, or start a new one.",
        ) from error
    if asks:
        check_files(configuration)
    return configuration
