"""``fallback-tier health`` and ``doctor``: checks whether fixes can be made now, and on this machine."""

import argparse
import sys

from fallback_audit.showing.describe import visible
from fallback_tier.cli import exit_codes, suggesting
from fallback_tier.cli.options import (
    NO_SANDBOX,
    completed,
    keys,
    record,
    repository_of,
    resolved_settings,
    state_dir,
)
from fallback_tier.cli.results import print_shown
from fallback_tier.errors import ConfigurationError
from fallback_tier.observing.health.checks import checks_of
from fallback_tier.observing.health.running import Check, Checks, Health
from fallback_tier.repo import Settings
from fallback_tier.wiring import Configuration


def run(arguments: argparse.Namespace) -> int:
    """Run every check, print the results, and return whether fixes can be made, as an exit code."""
    return _print(arguments, Checks(_checks(arguments)).run())


def diagnose(arguments: argparse.Namespace) -> int:
    """Do the same, with the checks of this machine first."""
    from fallback_tier.observing.health.machine import MACHINE_TIMEOUT_S, machine_checks

    configured = configuration(arguments)
    settings = Settings(offline=arguments.offline, allow_hosts=tuple(arguments.allow_host))
    configured = configured.model_copy(update={"settings": settings})
    repository = None if arguments.repository is None else repository_of(arguments)
    checks = (*machine_checks(configured, repository), *checks_of(configured))
    return _print(arguments, Checks(checks, timeout_s=MACHINE_TIMEOUT_S).run())


def _print(arguments: argparse.Namespace, health: Health) -> int:
    code = exit_codes.OK if health.ready else exit_codes.ENVIRONMENT
    return print_shown(arguments, health, lambda: sys.stdout.write(as_text(health)), code)


#: Options that a service's file has, too: with both, it would not be clear which of them counts.
_OF_THE_FILE = ("model", "base_url", "judge_model", "judge_base_url", "no_sandbox")


def _checks(arguments: argparse.Namespace) -> tuple[Check, ...]:
    if not arguments.config:
        return checks_of(configuration(arguments))
    from fallback_tier.cli.service_file import secrets_of, settings_of, state_of
    from fallback_tier.service.settings import configuration as of_service

    for name in _OF_THE_FILE:
        if getattr(arguments, name):
            raise ConfigurationError(
                f"--{name.replace('_', '-')} and --config are both given.",
                next_step="Leave the option out: the service's file has it.",
            )
    settings = settings_of(arguments)
    state = state_of(arguments, settings)
    configured = of_service(settings, state, secrets_of(arguments, settings))
    return checks_of(configured, min_free_bytes=settings.limits.min_free_bytes)


def configuration(arguments: argparse.Namespace) -> Configuration:
    """Return the part of a fix's configuration that is checked. ``--config`` is a service's file here,
    which is read elsewhere. Raises ConfigurationError."""
    without_file = argparse.Namespace(**{**vars(arguments), "config": None})
    arguments = completed(without_file, resolved_settings(without_file))
    configured = Configuration(
        state_dir=state_dir(arguments),
        record=record(arguments),
        model=arguments.model,
        base_url=arguments.base_url,
        judge_model=arguments.judge_model,
        judge_base_url=arguments.judge_base_url,
        sandbox_waiver=NO_SANDBOX if arguments.no_sandbox else None,
    )
    return configured.model_copy(update=keys(arguments.base_url, arguments.judge_base_url))


def as_text(health: Health) -> str:
    """Return one line per check, the next step below it, and the result of all last."""
    lines = []
    for check in health.checks:
        lines.append(f"{check.state.value:<8}  {check.check:<11}  {visible(check.reason)}")
        if check.next_step:
            lines.append(f"{'':<23}next: {visible(suggesting.completed(check.next_step))}")
    lines.append("ready" if health.ready else "not ready")
    return "\n".join(lines) + "\n"
