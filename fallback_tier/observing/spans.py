"""OpenTelemetry spans, made of the audit trail's events: a fix, its attempts, its gates, its model calls.

A fix is one trace, whose number is computed from the fix's identifier, so that a resumed fix continues the
same trace. Model calls follow the conventions for generative AI (``gen_ai.*``). Prompts and answers are in
no span.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import version
from typing import NamedTuple

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

from fallback_audit.events import (
    CLOSING_KINDS,
    AttemptRefused,
    AttemptStarted,
    ConsumerLeft,
    FixEscalated,
    FixRefused,
    FixStarted,
    GateJudged,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
    PatchProposed,
    RetrievalQueried,
)
from fallback_audit.ports import StoredEvent
from fallback_audit.vocabulary import GateStatus

#: Maximum number of open spans: far more than running fixes, attempts and calls.
MAX_OPEN = 1_000

#: Time limit of one export, and of the last one at the end (milliseconds).
EXPORT_TIMEOUT_MS = 5_000

ENDPOINT, TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"

_NS = 1_000_000_000
_MS = 1_000_000

Attributes = dict[str, str | int | float | bool | list[str]]


class _Key(NamedTuple):
    """Key of a span: of a fix (attempt 0), an attempt (call 0), or a call."""

    transition: str
    attempt: int = 0
    call: int = 0
    call_type: str = ""


class _Ids(IdGenerator):
    """Generates ids: the trace id that was set, and random span ids."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self.trace_id = 0

    def generate_span_id(self) -> int:
        return self._random.generate_span_id()

    def generate_trace_id(self) -> int:
        return self.trace_id or self._random.generate_trace_id()


def trace_id_of(fix_id: str) -> int:
    """Return the number of a fix's trace: 128 bits of its identifier's digest."""
    return int.from_bytes(hashlib.sha256(fix_id.encode()).digest()[:16], "big") or 1


class Spans:
    """Makes spans of events and passes them to ``processor``. Not thread-safe."""

    kinds = None

    def __init__(self, processor: SpanProcessor) -> None:
        self._ids = _Ids()
        resource = Resource.create(
            {"service.name": "fallback-tier", "service.version": version("fallback-tier")}
        )
        self._provider = TracerProvider(
            resource=resource, id_generator=self._ids, shutdown_on_exit=False
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer(
            "fallback_tier.observing", version("fallback-tier")
        )
        self._open: OrderedDict[_Key, Span] = OrderedDict()

    def take(self, stored: StoredEvent) -> None:
        """Begin or end the spans that this event concerns."""
        transition, when = stored.scope.gate_transition_id, _nanoseconds(stored)
        match stored.payload:
            case FixStarted() as event:
                attributes: Attributes = {
                    "fallback_tier.advisory_id": event.advisory_id,
                    "fallback_tier.ecosystem": event.ecosystem,
                }
                self._begin(_Key(transition), "fix", stored, attributes)
            case AttemptStarted() as event:
                attributes = {
                    "fallback_tier.attempt": event.attempt,
                    "fallback_tier.prompt_shape": event.prompt_shape.value,
                }
                self._begin(_Key(transition, event.attempt), "attempt", stored, attributes)
            case ModelCalled() as event:
                self._call(event, stored)
            case ModelAnswered() | ModelFailed() as event:
                self._call_ends(event, stored)
            case RetrievalQueried() as event:
                retrieval: Attributes = {"fallback_tier.retrieval": event.verdict.value}
                self._tell(_Key(transition, event.attempt), retrieval)
            case PatchProposed() as event:
                self._end(
                    _Key(transition, event.attempt), when, {"fallback_tier.tier": event.tier.value}
                )
            case AttemptRefused() as event:
                refusal: Attributes = {"fallback_tier.refusal": event.reason.value}
                self._end(_Key(transition, event.attempt), when, refusal)
            case ConsumerLeft() as event:
                self._end(_Key(transition, event.attempt), when, {}, failed="consumer_left")
            case GateJudged() as event:
                self._gate(event, stored)
            case event if stored.kind in CLOSING_KINDS:
                outcome: Attributes = {"fallback_tier.outcome": _outcome(stored.kind)}
                if isinstance(event, FixRefused | FixEscalated):
                    outcome["fallback_tier.reason"] = event.reason.value
                self._end(_Key(transition), when, outcome)

    def begin_again(self) -> None:
        """Do nothing: what was exported remains."""

    def close(self) -> None:
        """Export ended spans and drop open ones. Idempotent."""
        self._open.clear()
        self._provider.force_flush(EXPORT_TIMEOUT_MS)
        self._provider.shutdown()

    def _begin(
        self,
        key: _Key,
        name: str,
        stored: StoredEvent,
        attributes: Attributes,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> None:
        self._ids.trace_id = trace_id_of(stored.scope.fix_id)
        identity: Attributes = {
            "fallback_tier.fix_id": stored.scope.fix_id,
            "fallback_tier.gate_transition_id": key.transition,
        }
        span = self._tracer.start_span(
            name,
            context=self._parent(key),
            kind=kind,
            attributes=identity | attributes,
            start_time=_nanoseconds(stored),
        )
        assert isinstance(span, Span)  # noqa: S101 (the SDK's tracer returns it)
        self._open[key] = span
        while len(self._open) > MAX_OPEN:
            self._open.popitem(last=False)

    def _parent(self, key: _Key) -> Context:
        """Return the parent: of a call its attempt, of an attempt its fix; without one, the span begins
        the trace.
        """
        for parent_key in (_Key(key.transition, key.attempt), _Key(key.transition)):
            if parent_key != key and parent_key in self._open:
                return set_span_in_context(self._open[parent_key], Context())
        return Context()

    def _tell(self, key: _Key, attributes: Attributes) -> None:
        if key in self._open:
            self._open[key].set_attributes(attributes)

    def _end(self, key: _Key, when: int, attributes: Attributes, failed: str | None = None) -> None:
        span = self._open.pop(key, None)
        if span is None:
            return  # it began before we did
        span.set_attributes(attributes)
        if failed is not None:
            span.set_attribute("error.type", failed)
            span.set_status(Status(StatusCode.ERROR))
        span.end(when)

    def _call(self, event: ModelCalled, stored: StoredEvent) -> None:
        attributes: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "messages_api",
            "gen_ai.request.model": event.model,
            "fallback_tier.attempt": event.attempt,
            "fallback_tier.call_type": event.call_type.value,
            "fallback_tier.provenance": event.provenance.value,
        }
        key = _call_key(event, stored)
        self._begin(key, f"chat {event.model}", stored, attributes, SpanKind.CLIENT)

    def _call_ends(self, event: ModelAnswered | ModelFailed, stored: StoredEvent) -> None:
        key, when = _call_key(event, stored), _nanoseconds(stored)
        if isinstance(event, ModelFailed):
            error_type = "_OTHER" if event.failure is None else event.failure.value
            self._end(key, when, {}, failed=error_type)
            return
        attributes: Attributes = {
            "gen_ai.usage.input_tokens": event.input_tokens,
            "gen_ai.usage.output_tokens": event.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": event.cache_read_tokens,
            "gen_ai.usage.cache_creation.input_tokens": event.cache_write_tokens,
            "gen_ai.response.finish_reasons": [event.stop_reason],
        }
        self._end(key, when, attributes)

    def _gate(self, event: GateJudged, stored: StoredEvent) -> None:
        """Make the span of a gate, whose event is recorded at its end: it begins earlier by the gate's
        duration.
        """
        when = _nanoseconds(stored)
        self._ids.trace_id = trace_id_of(stored.scope.fix_id)
        span = self._tracer.start_span(
            f"gate {event.gate}",
            context=self._parent(_Key(stored.scope.gate_transition_id, -1)),
            attributes={
                "fallback_tier.fix_id": stored.scope.fix_id,
                "fallback_tier.attempt": event.attempt,
                "fallback_tier.gate": event.gate,
                "fallback_tier.gate_status": event.status.value,
            },
            start_time=when - event.duration_ms * _MS,
        )
        if event.status is GateStatus.FAILED:
            error_type = "_OTHER" if event.failure_kind is None else event.failure_kind.value
            span.set_attribute("error.type", error_type)
        span.end(when)


def _call_key(event: ModelCalled | ModelAnswered | ModelFailed, stored: StoredEvent) -> _Key:
    return _Key(stored.scope.gate_transition_id, event.attempt, event.call, event.call_type.value)


def _outcome(kind: str) -> str:
    return kind.removeprefix("Fix").lower()


def _nanoseconds(stored: StoredEvent) -> int:
    moment = datetime.fromisoformat(stored.recorded_at)
    return int(moment.timestamp()) * _NS + moment.microsecond * 1_000


def spans_for(environ: Mapping[str, str]) -> Spans | None:
    """Return spans for the OTLP endpoint (HTTP) that the environment names, or None if it names none."""
    endpoint = environ.get(TRACES_ENDPOINT) or environ.get(ENDPOINT)
    if not endpoint:
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    if not environ.get(TRACES_ENDPOINT):
        endpoint = endpoint.rstrip("/") + "/v1/traces"
    exporter: SpanExporter = OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_TIMEOUT_MS / 1000)
    return Spans(BatchSpanProcessor(exporter, export_timeout_millis=EXPORT_TIMEOUT_MS))
