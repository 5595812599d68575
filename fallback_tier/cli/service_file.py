"""The service's settings, for every command that takes its file: the file, options, the environment.

It also has, for every command, the locations that follow from them.
"""

import argparse
import os
import shlex
from pathlib import Path

from pydantic import SecretStr, ValidationError

from fallback_tier.cli.options import FLEET_STORE, keys, record, state_dir
from fallback_tier.errors import ConfigurationError, FallbackError, first_fault
from fallback_tier.service.settings import Secrets, ServiceSettings, read_settings, record_settings
from fallback_tier.wiring import commands
from fallback_tier.wiring.trail import shown_url

#: The client secret of this service at an OpenID Connect issuer.
OIDC_SECRET = "FALLBACK_TIER_OIDC_SECRET"  # noqa: S105 (the name of a variable)


def settings_of(arguments: argparse.Namespace) -> ServiceSettings:
    """Return the file's settings, with those that options name instead. Raises ConfigurationError."""
    settings = read_settings(Path(arguments.config) if arguments.config else None)
    listen = {
        name: value
        for name in ("host", "port", "tls_cert", "tls_key")
        if (value := getattr(arguments, name, None)) is not None
    }
    from_options = record(arguments)
    record_paths = {
        name: value
        for name, value in {
            "checkpoints": from_options.checkpoints,
            "keys": from_options.keys,
        }.items()
        if value is not None
    }
    state = {"state_dir": state_dir(arguments)} if arguments.state_dir else {}
    facts = settings.model_dump() | state
    facts |= {"listen": facts["listen"] | listen, "record": facts["record"] | record_paths}
    try:
        return ServiceSettings.model_validate(facts)
    except ValidationError as error:
        raise ConfigurationError(
            f"The options do not fit: {first_fault(error, 'the whole')}.",
            next_step="`fallback-tier serve --help` describes them.",
        ) from error


def secrets_of(arguments: argparse.Namespace, settings: ServiceSettings) -> Secrets:
    """Return the secrets in the environment."""
    model = settings.model
    oidc, fleet = os.environ.get(OIDC_SECRET), os.environ.get(FLEET_STORE)
    server_keys = keys(model.base_url, model.judge_base_url)
    return Secrets(
        api_key=server_keys["api_key"],
        judge_api_key=server_keys["judge_api_key"],
        database=record(arguments).database,
        fleet=SecretStr(fleet) if fleet else None,
        oidc=SecretStr(oidc) if oidc else None,
    )


def state_of(arguments: argparse.Namespace, settings: ServiceSettings) -> Path:
    """Return the state folder: the option's, the file's, or the user's."""
    return settings.state_dir or state_dir(arguments)


def locations(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the location options that a suggested command needs, each with its value as a shell reads it.

    An address in the environment is left out: it is there when the command is pasted.
    """
    options: dict[str, str] = {}
    if arguments.command in ("serve", "health") and arguments.config:
        options = _locations_of_file(arguments)
    elif hasattr(arguments, "state_dir"):
        options = commands.locations(state_dir(arguments), record(arguments))
    if not getattr(arguments, "audit_store", None):
        options.pop("--audit-store", None)
    if url := getattr(arguments, "fleet_store", None):
        options["--fleet-store"] = shown_url(url)
    if store := getattr(arguments, "store", None):
        options["--store"] = shlex.quote(str(Path(store).absolute()))
    return options


def _locations_of_file(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the locations in the file; none if it can't be read."""
    try:
        settings = settings_of(arguments)
    except FallbackError:
        return {}
    record_of = record_settings(settings, secrets_of(arguments, settings))
    return commands.locations(state_of(arguments, settings), record_of)
