"""A fix is a trace: attempts, gates and model calls in it, by the record's own times."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from fallback_audit.events import AuditEvent
from fallback_tier.observing import spans as module
from fallback_tier.observing.spans import Spans, spans_for, trace_id_of
from tests.fakes.serving import listening
from tests.unit.audit import trails
from tests.unit.observing.observed import ObservedTrail


def told(place: Path, events: Sequence[AuditEvent], fix: str = "fix-1") -> list[ReadableSpan]:
    exporter, observed = InMemorySpanExporter(), ObservedTrail(place)
    spans = Spans(SimpleSpanProcessor(exporter))
    for stored in observed.record(events, fix):
        spans.take(stored)
    found = list(exporter.get_finished_spans())
    spans.close()
    observed.close()
    return found


def named(spans: Sequence[ReadableSpan], name: str) -> list[ReadableSpan]:
    return [span for span in spans if span.name == name]


def test_a_fix_is_one_trace(tmp_path: Path) -> None:
    spans = told(tmp_path, trails.verified_on_retry())
    (fix,) = named(spans, "fix")
    assert fix.context is not None
    assert fix.parent is None
    assert fix.context.trace_id == trace_id_of("fix-1")
    assert {span.context.trace_id for span in spans if span.context} == {trace_id_of("fix-1")}
    assert {(span.attributes or {})["fallback_tier.fix_id"] for span in spans} == {"fix-1"}
    attempts = named(spans, "attempt")
    assert [(span.attributes or {})["fallback_tier.attempt"] for span in attempts] == [1, 2]
    assert [(span.attributes or {})["fallback_tier.tier"] for span in attempts] == ["recipe", "llm"]
    assert {span.parent.span_id for span in attempts if span.parent} == {fix.context.span_id}
    assert (fix.attributes or {})["fallback_tier.outcome"] == "verified"
    gates = named(spans, "gate tests")
    assert [(span.attributes or {})["fallback_tier.gate_status"] for span in gates] == [
        "failed",
        "passed",
    ]
    assert {span.parent.span_id for span in gates if span.parent} == {fix.context.span_id}
    assert all(
        fix.start_time <= span.start_time <= span.end_time <= fix.end_time
        for span in attempts
        if fix.start_time and fix.end_time and span.start_time and span.end_time
    )


def test_a_model_call_follows_the_conventions(tmp_path: Path) -> None:
    spans = told(tmp_path, [*trails.model_with_examples()])
    (call,) = named(spans, "chat a-model")
    (attempt,) = named(spans, "attempt")
    assert call.kind is SpanKind.CLIENT
    assert call.parent is not None
    assert attempt.context is not None
    assert call.parent.span_id == attempt.context.span_id
    facts = dict(call.attributes or {})
    assert facts["gen_ai.operation.name"] == "chat"
    assert facts["gen_ai.request.model"] == "a-model"
    assert facts["gen_ai.usage.input_tokens"] == 900
    assert facts["gen_ai.usage.output_tokens"] == 100
    assert facts["gen_ai.response.finish_reasons"] == ("end_turn",)
    assert facts["fallback_tier.attempt"] == 1
    assert (attempt.attributes or {})["fallback_tier.retrieval"] == "hit"


def test_the_names_are_those_of_the_conventions() -> None:
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

    known = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI")}
    source = Path(module.__file__).read_text()
    used = {word for word in source.split('"') if word.startswith("gen_ai.")}
    assert len(used) == 8
    assert used <= known


def test_a_call_that_failed_is_an_error(tmp_path: Path) -> None:
    spans = told(
        tmp_path,
        [trails.fix_started(), trails.started(1, 0), trails.called(1), trails.unanswered(1)],
    )
    (call,) = named(spans, "chat a-model")
    assert call.status.status_code is StatusCode.ERROR
    assert (call.attributes or {})["error.type"] == "_OTHER"


def test_what_was_not_seen_to_begin_is_not_told(tmp_path: Path) -> None:
    """The service was started in the middle of a fix: the attempt after that begins its trace."""
    spans = told(tmp_path, trails.cap_reached()[5:])
    assert named(spans, "fix") == []
    attempts = named(spans, "attempt")
    assert len(attempts) == 3
    assert {span.parent for span in attempts} == {None}
    assert {span.context.trace_id for span in attempts if span.context} == {trace_id_of("fix-1")}


def test_spans_that_never_end_are_bounded(tmp_path: Path) -> None:
    exporter, observed = InMemorySpanExporter(), ObservedTrail(tmp_path)
    spans = Spans(SimpleSpanProcessor(exporter))
    for number in range(40):
        for stored in observed.record([trails.fix_started()], fix=f"fix-{number}"):
            spans.take(stored)
    assert len(spans._open) == 40
    module_limit, module.MAX_OPEN = module.MAX_OPEN, 10
    try:
        for stored in observed.record([trails.fix_started()], fix="one-more"):
            spans.take(stored)
    finally:
        module.MAX_OPEN = module_limit
    assert len(spans._open) == 10
    spans.close()
    observed.close()


@contextmanager
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """What takes spans by OTLP over HTTP."""
    got: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            body = self.rfile.read(int(self.headers["content-length"]))
            got.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with listening(Handler) as address:
        yield address, got


def test_they_arrive_at_an_endpoint_that_is_configured_and_else_there_are_none(
    tmp_path: Path,
) -> None:
    assert spans_for({}) is None
    observed = ObservedTrail(tmp_path)
    with collector() as (url, got):
        spans = spans_for({"OTEL_EXPORTER_OTLP_ENDPOINT": url})
        assert spans is not None
        for stored in observed.record(trails.recipe_verified()):
            spans.take(stored)
        spans.close()
    (resource,) = got[0].resource_spans
    facts = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert facts["service.name"] == "fallback-tier"
    names = [span.name for scope in resource.scope_spans for span in scope.spans]
    assert names == ["attempt", "gate applies", "gate tests", "gate proof", "fix"]
    observed.close()
