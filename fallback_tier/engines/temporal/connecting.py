"""Connection to a Temporal cluster, by address, namespace and certificates."""

import logging
import re
from collections.abc import Coroutine
from functools import cache
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)
from temporalio.service import RPCError, RPCStatusCode, TLSConfig

from fallback_audit.frozen import Frozen
from fallback_tier.errors import ConfigurationError, FallbackError

#: Address of ``fallback-tier fleet dev``, and the SDK's own default.
ADDRESS = "127.0.0.1:7233"

#: The shared task queue, for workers with room; a worker's own queue has its name, too (``naming``).
QUEUE = "fallback-tier"

#: The system's reason in an error of the SDK's transport.
_OF_SYSTEM = re.compile(r'kind: \w+, message: "([^"]{1,200})"')

#: Shown with a command that can't reach the cluster.
_NEXT = "Start one with `fallback-tier fleet dev`, or correct --temporal, --namespace and the TLS files."


class EngineUnreachableError(FallbackError):
    """Temporal can't be reached: its state is unknown, and nothing was done."""

    code = "engine_unreachable"


class Cluster(Frozen):
    """A cluster.

    ``ca``: the authority of the cluster's certificate; ``cert`` and ``key``: this client's own (mTLS);
    ``server_name``: the name in the certificate, if that is not the address. All are PEM files; without
    them there is no TLS, for a loopback server.
    """

    address: str = ADDRESS
    namespace: str = "default"
    queue: str = QUEUE
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str | None = None

    def tls(self) -> TLSConfig | bool:
        """Return the SDK's TLS configuration. Raises ConfigurationError."""
        if (self.cert is None) != (self.key is None):
            raise ConfigurationError(
                "A client certificate needs its key, and a key its certificate.",
                next_step="Give both --tls-cert and --tls-key, or neither.",
                kind="half_a_certificate",
            )
        if self.ca is None and self.cert is None and self.server_name is None:
            return False
        return TLSConfig(
            server_root_ca_cert=_read(self.ca),
            domain=self.server_name,
            client_cert=_read(self.cert),
            client_private_key=_read(self.key),
        )


async def connect(cluster: Cluster) -> Client:
    """Return a client. Raises EngineUnreachableError, ConfigurationError."""
    try:
        return await Client.connect(
            cluster.address, namespace=cluster.namespace, tls=cluster.tls(), runtime=_runtime()
        )
    except (RPCError, RuntimeError, OSError) as error:  # the SDK's core raises RuntimeError
        raise unreachable(cluster, error) from error


@cache
def _runtime() -> Runtime:
    """Return the SDK's runtime, whose log lines go to the logger ``temporalio`` and not to a terminal.

    A host that wants them gives that logger a handler.
    """
    logger = logging.getLogger("temporalio")
    logger.addHandler(logging.NullHandler())
    severities = TelemetryFilter(core_level="WARN", other_level="ERROR")
    config = LoggingConfig(filter=severities, forwarding=LogForwardingConfig(logger=logger))
    return Runtime(telemetry=TelemetryConfig(logging=config))


def unreachable(cluster: Cluster, error: Exception) -> EngineUnreachableError:
    """Return the error for a cluster that does not answer, with the system's part of the SDK's message."""
    message = " ".join(str(error).split())
    match = _OF_SYSTEM.search(message)
    reason = match[1] if match else message[:200]
    return EngineUnreachableError(
        f"Temporal at {cluster.address} (namespace {cluster.namespace}) can't be reached: {reason}",
        next_step=_NEXT,
        kind="unreachable",
    )


async def unless_unknown(work: Coroutine[Any, Any, None]) -> bool:
    """Await a call. Return False if there is no such workflow, or it is over. Raises RPCError."""
    try:
        await work
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"TLS file {path} can't be read: {error.strerror}.",
            next_step="Name a readable PEM file.",
            kind="unreadable",
        ) from error
