"""``fallback-tier serve``: from options and environment to a service that listens."""

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path

from pydantic import SecretStr, ValidationError

from fallback_tier.cli import exit_codes
from fallback_tier.cli.options import keys, record, state_dir
from fallback_tier.errors import ConfigurationError, ToolMissingError, first_fault
from fallback_tier.service.configuring import Secrets
from fallback_tier.service.settings import ServiceSettings, read_settings

#: The secret of this service at an OpenID Connect issuer.
OIDC_SECRET = "FALLBACK_TIER_OIDC_SECRET"  # noqa: S105 (the name of a variable)

#: What the extra brings.
_LIBRARIES = (
    "fastapi",
    "starlette",
    "uvicorn",
    "limits",
    "authlib",
    "itsdangerous",
    "prometheus_client",
    "structlog",
    "opentelemetry.sdk",
    "multipart",
    "pygments",
)


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal ends it."""
    check_extra()
    from fastapi import Depends

    from fallback_tier.observing.health.running import Check
    from fallback_tier.observing.http import routes
    from fallback_tier.observing.observer import build_observer
    from fallback_tier.portal.mounting import open_portal
    from fallback_tier.service.configuring import configuration
    from fallback_tier.service.http.security import needs
    from fallback_tier.service.opening import open_service
    from fallback_tier.service.roles import Role
    from fallback_tier.service.serving import check_listening, first_key, serve

    settings = settings_of(arguments)
    check_listening(settings.listen)
    place = settings.state_dir or state_dir(arguments)
    with open_service(settings, place, secrets_of(arguments, settings)) as service:
        if (made := first_key(service)) is not None:
            _say(f"an admin's API key, shown this once: {made.secret}")
        observer = build_observer(
            configuration(settings, place, service.secrets),
            os.environ,
            log_to=sys.stderr,
            queue_depth=service.queue.counts,
            min_free_bytes=settings.limits.min_free_bytes,
            besides=[Check("queue", service.dispatcher.found)],
        )
        observer.start()
        try:
            serve(
                service,
                lambda address: _say(f"listening on {address}"),
                observer=observer,
                routers=[routes(observer, readers=[Depends(needs(Role.READ))])],
                pages=open_portal(service),
            )
        finally:
            observer.close()
    return exit_codes.OK


def check_extra() -> None:
    """Raises ToolMissingError where the libraries of the extra are not installed."""
    for name in _LIBRARIES:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            raise ToolMissingError(
                f"The service needs {error.name}, which is not installed.",
                next_step="pip install 'fallback-tier[serve]'",
            ) from error


def settings_of(arguments: argparse.Namespace) -> ServiceSettings:
    """The file's settings, with those that options name instead. Raises ConfigurationError."""
    settings = read_settings(Path(arguments.config) if arguments.config else None)
    reported = {
        name: value
        for name in ("host", "port", "tls_cert", "tls_key")
        if (value := getattr(arguments, name, None)) is not None
    }
    given = record(arguments)
    places = {
        name: value
        for name, value in {"checkpoints": given.checkpoints, "keys": given.keys}.items()
        if value is not None
    }
    state = {"state_dir": state_dir(arguments)} if arguments.state_dir else {}
    facts = settings.model_dump() | state
    facts |= {"listen": facts["listen"] | reported, "record": facts["record"] | places}
    try:
        return ServiceSettings.model_validate(facts)
    except ValidationError as error:
        raise ConfigurationError(
            f"The options do not fit: {first_fault(error, 'the whole')}.",
            next_step="`fallback-tier serve --help` describes them.",
        ) from error


def secrets_of(arguments: argparse.Namespace, settings: ServiceSettings) -> Secrets:
    """What the environment has."""
    model = settings.model
    oidc = os.environ.get(OIDC_SECRET)
    found = keys(model.base_url, model.judge_base_url)
    return Secrets(
        api_key=found["api_key"],
        judge_api_key=found["judge_api_key"],
        database=record(arguments).database,
        oidc=SecretStr(oidc) if oidc else None,
    )


def _say(line: str) -> None:
    """At once: who started it waits for this."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
