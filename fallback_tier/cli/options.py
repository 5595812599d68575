"""From parsed options to a Configuration. The only place that reads the environment."""

import argparse
import os
from pathlib import Path

from pydantic import SecretStr

from fallback_tier.advisory import AdvisorySet, load_advisories
from fallback_tier.errors import AdvisoryError, ConfigurationError
from fallback_tier.repo import Settings
from fallback_tier.wiring import Configuration

#: The provider's key is never sent to another server: one behind --base-url has a variable of its own.
PROVIDER_KEY, OTHER_KEY = "ANTHROPIC_API_KEY", "FALLBACK_TIER_API_KEY"


def state_dir(arguments: argparse.Namespace) -> Path:
    """Where the audit trail, the evidence and the caches are."""
    if arguments.state_dir:
        return Path(arguments.state_dir).absolute()
    import platformdirs

    return platformdirs.user_state_path("fallback-tier")


def advisories(arguments: argparse.Namespace) -> AdvisorySet:
    """All that --advisory names. Raises AdvisoryError where something was given, and none of it can
    be used; an empty report is fine."""
    given = load_advisories([Path(path) for path in arguments.advisory])
    if given.skipped and not (given.advisories or given.findings):
        first = given.skipped[0]
        raise AdvisoryError(
            f"Nothing that --advisory names can be used: {first.source}: {first.reason}",
            next_step="Give an OSV record, a folder of them, or a scanner's report.",
        )
    return given


def settings(arguments: argparse.Namespace) -> Settings:
    """What the options say about an attempt."""
    return Settings(offline=arguments.offline)


def configuration(arguments: argparse.Namespace) -> Configuration:
    """The configuration that the options and the environment describe. Raises ConfigurationError."""
    for option in ("script", "examples"):
        path = getattr(arguments, option)
        if path and not Path(path).is_file():
            raise ConfigurationError(
                f"--{option} {path}: there is no such file.", next_step="Check the path."
            )
    keys = {name: os.environ.get(name) for name in (PROVIDER_KEY, OTHER_KEY)}
    key = keys[OTHER_KEY if arguments.base_url else PROVIDER_KEY]
    waiver = "--no-sandbox was given" if getattr(arguments, "no_sandbox", False) else None
    return Configuration(
        state_dir=state_dir(arguments),
        model=arguments.model,
        base_url=arguments.base_url,
        api_key=SecretStr(key) if key else None,
        secrets=tuple(SecretStr(value) for value in keys.values() if value),
        script=Path(arguments.script) if arguments.script else None,
        examples=Path(arguments.examples) if arguments.examples else None,
        routing_floor=arguments.routing_floor,
        sandbox_waiver=waiver,
        settings=settings(arguments),
    )
