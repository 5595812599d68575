"""Structured logs: one line of JSON per event of the audit trail, request, or library message.

They contain closed vocabularies, numbers and identifiers, but no text of people, targets or models: that is
in the audit trail.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TextIO

import structlog

from fallback_audit.ports import StoredEvent

#: Logged members of an event: numbers, or values of a closed vocabulary.
_TOLD = (
    "attempt",
    "call",
    "call_type",
    "gate",
    "status",
    "tier",
    "failure_kind",
    "last_failure_kind",
    "reason",
    "limit",
    "verdict",
    "supported",
    "input_tokens",
    "output_tokens",
    "duration_ms",
    "proof_level",
    "ecosystem",
    "rule",
)

#: Maximum number of characters of a vocabulary's value; longer text is prose.
_MAX_WORD = 60

_TIMES = structlog.processors.TimeStamper(fmt="iso", utc=True)


class Logs:
    """Writes to ``stream``. ``install`` redirects the libraries' own messages there, too."""

    kinds = None

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._handler: logging.Handler | None = None
        self._log = structlog.wrap_logger(
            structlog.WriteLogger(stream),
            processors=[
                structlog.processors.add_log_level,
                _TIMES,
                structlog.processors.JSONRenderer(default=str),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        )

    def take(self, stored: StoredEvent) -> None:
        """Log an event of the audit trail, with its own time as ``recorded_at``."""
        self._write(
            self._log.warning if stored.payload.badge.warns else self._log.info,
            stored.kind,
            seq=stored.seq,
            fix_id=stored.scope.fix_id,
            gate_transition_id=stored.scope.gate_transition_id,
            recorded_at=stored.recorded_at,
            **_members(stored.payload.model_dump(mode="json")),
        )

    def begin_again(self) -> None:
        """Do nothing: what was logged remains."""

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Log a request that was answered."""
        self._write(
            self._log.info,
            "request",
            method=method,
            route=route,
            status=status,
            duration_ms=round(seconds * 1000, 1),
        )

    def info(self, event: str, **facts: object) -> None:
        """Log an event of this process."""
        self._write(self._log.info, event, **facts)

    def warning(self, event: str, **facts: object) -> None:
        """Log an event that needs a person's attention."""
        self._write(self._log.warning, event, **facts)

    def _write(self, log_method: Callable[..., object], event: str, **facts: object) -> None:
        """Write a line. A log that can't be written (a broken pipe, a full disk) stops nothing else."""
        with suppress(OSError, ValueError):  # ValueError: the stream is closed
            log_method(event, **facts)

    def install(self) -> None:
        """Redirect Python's own logging here, so that libraries' messages are JSON as well."""
        handler = logging.StreamHandler(self._stream)
        handler.setFormatter(
            structlog.stdlib.ProcessorFormatter(
                foreign_pre_chain=[
                    structlog.stdlib.add_log_level,
                    structlog.stdlib.add_logger_name,
                    _TIMES,
                ],
                processors=[
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    structlog.processors.format_exc_info,
                    structlog.processors.JSONRenderer(default=str),
                ],
            )
        )
        logging.getLogger().addHandler(handler)
        self._handler = handler

    def close(self) -> None:
        """Undo ``install``. Idempotent."""
        handler, self._handler = self._handler, None
        if handler is not None:
            logging.getLogger().removeHandler(handler)


def _members(payload: Mapping[str, Any]) -> dict[str, Any]:
    members = {name: payload[name] for name in _TOLD if payload.get(name) is not None}
    return {name: value for name, value in members.items() if not _is_prose(name, value)}


def _is_prose(name: str, value: object) -> bool:
    """Return whether a value is free text: ``reason`` is from a vocabulary in some events, and a
    sentence in others.
    """
    if not isinstance(value, str):
        return False
    if name == "reason" and not value.replace("_", "").isalpha():
        return True
    return len(value) > _MAX_WORD or not value.isprintable()
