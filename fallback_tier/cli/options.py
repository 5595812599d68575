"""From parsed options to a Configuration. The only place that reads the environment."""

import argparse
import os
from pathlib import Path

import platformdirs
from pydantic import SecretStr

from fallback_tier.errors import ConfigurationError
from fallback_tier.wiring import Configuration

KEY_VARIABLE = "ANTHROPIC_API_KEY"


def state_dir(arguments: argparse.Namespace) -> Path:
    """Where the audit trail, the evidence and the caches are."""
    if arguments.state_dir:
        return Path(arguments.state_dir).absolute()
    return platformdirs.user_state_path("fallback-tier")


def configuration(arguments: argparse.Namespace) -> Configuration:
    """The configuration that the options and the environment describe. Raises ConfigurationError."""
    for option in ("script", "examples"):
        path = getattr(arguments, option)
        if path and not Path(path).is_file():
            raise ConfigurationError(
                f"--{option} {path}: there is no such file.", next_step="Check the path."
            )
    key = os.environ.get(KEY_VARIABLE)
    waiver = "--no-sandbox was given" if getattr(arguments, "no_sandbox", False) else None
    return Configuration(
        state_dir=state_dir(arguments),
        model=arguments.model,
        base_url=arguments.base_url,
        api_key=SecretStr(key) if key else None,
        script=Path(arguments.script) if arguments.script else None,
        examples=Path(arguments.examples) if arguments.examples else None,
        sandbox_waiver=waiver,
    )
