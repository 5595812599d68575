"""``fallback-tier serve``: from options and environment to a service that listens."""

import argparse
import os
import sys
from contextlib import closing
from importlib import import_module

from fallback_tier.cli import exit_codes
from fallback_tier.cli.output import say
from fallback_tier.cli.service_file import secrets_of, settings_of, state_of
from fallback_tier.errors import ToolMissingError

#: Libraries of the extra.
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
    from fallback_tier.service.http.security import needs
    from fallback_tier.service.opening import open_service
    from fallback_tier.service.roles import Role
    from fallback_tier.service.serving import check_listening, first_key, serve
    from fallback_tier.service.settings import configuration

    settings = settings_of(arguments)
    check_listening(settings.listen)
    state = state_of(arguments, settings)
    with open_service(settings, state, secrets_of(arguments, settings)) as service:
        if (new_key := first_key(service)) is not None:
            say(f"an admin's API key, shown this once: {new_key.secret}")
        observer = build_observer(
            configuration(settings, state, service.secrets),
            os.environ,
            log_to=sys.stderr,
            queue_depth=service.queue.counts,
            min_free_bytes=settings.limits.min_free_bytes,
            besides=[Check("queue", service.dispatcher.found)],
        )
        with closing(observer):
            serve(
                service,
                lambda address: say(f"listening on {address}"),
                observer=observer,
                routers=[routes(observer, readers=[Depends(needs(Role.READ))])],
                pages=open_portal(service),
            )
    return exit_codes.OK


def check_extra() -> None:
    """Raise ToolMissingError if the libraries of the extra are not installed."""
    for name in _LIBRARIES:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            raise ToolMissingError(
                f"The service needs {error.name}, which is not installed.",
                next_step="pip install 'fallback-tier[serve]'",
                kind="extra_missing",
            ) from error
