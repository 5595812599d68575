"""The observer: follower of the audit trail, metrics, logs, spans and health checks, put together."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TextIO

from prometheus_client import CollectorRegistry

from fallback_audit.checkpoints.log import CheckpointLog
from fallback_tier.observing.following import Follower
from fallback_tier.observing.health.checks import MIN_FREE_BYTES, checks_of
from fallback_tier.observing.health.running import Check, Checks, CheckState, Health
from fallback_tier.observing.logs import Logs
from fallback_tier.observing.metrics import Counting, Families, Figures, QueueDepth
from fallback_tier.observing.record import open_record
from fallback_tier.observing.spans import Spans, spans_for
from fallback_tier.wiring import Configuration
from fallback_tier.wiring.trail import checkpoint_dir

#: Between two looks at the audit trail without a request (seconds): logs and traces lag by this much.
POLL_S = 2.0

#: Looks per run of the checks, so that metrics have their results without a scrape waiting for them.
LOOKS_A_CHECK = 8

#: Time limit for the thread's end (seconds).
_STOP_S = 10.0

#: Methods that HTTP defines; others are counted together.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

#: Path of event streams, which last as long as they have followers.
_STREAM = "/fixes/{fix_id}/events"


@dataclass(eq=False)
class Observer:
    """``start`` it before the first request, ``close`` it after the last. Thread-safe."""

    families: Families
    follower: Follower
    figures: Figures
    checks: Checks
    _: KW_ONLY
    logs: Logs | None = None
    spans: Spans | None = None
    _over: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)
    _reported: dict[str, CheckState] = field(default_factory=dict, init=False)

    def start(self) -> None:
        """Follow the audit trail from now on. Earlier events are counted, but not logged."""
        if self.logs is not None:
            self.logs.install()
        self.follower.catch_up(patience_s=0)
        self._thread = threading.Thread(target=self._follow, name="observer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Log and export what was recorded until now, and end. Idempotent."""
        self._over.set()
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.join(_STOP_S)
        self.follower.catch_up()
        if self.spans is not None:
            self.spans.close()
        if self.logs is not None:
            self.logs.close()

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """Record an answered request. ``route``: the path as declared, never as requested."""
        method = method if method in _METHODS else "other"
        self.families.http_requests.labels(method, route, str(status)).inc()
        if not route.endswith(_STREAM):
            self.families.http_duration.labels(method, route).observe(seconds)
        if self.logs is not None:
            self.logs.request(method, route, status, seconds)

    def health(self) -> Health:
        """Return the results of all checks, at most a moment old."""
        health = self.checks.run()
        for result in health.checks:
            self.families.check_ok.labels(result.check).set(result.state is not CheckState.FAILED)
        self.families.ready.set(health.ready)
        return health

    def metrics(self, accept: str = "") -> tuple[bytes, str]:
        """Return Prometheus' text, and its content type."""
        self.figures.refresh()
        return self.figures.prometheus(accept)

    def document(self) -> dict[str, Any]:
        """Return the same metrics as JSON."""
        self.figures.refresh()
        return self.figures.document()

    def _follow(self) -> None:
        looks = 0
        while not self._over.is_set():
            try:
                if looks % LOOKS_A_CHECK == 0:
                    self._tell_changes(self.health())
                is_behind = self.follower.catch_up().behind
            except Exception as error:  # noqa: BLE001 (otherwise following would end silently)
                is_behind = 0
                if self.logs is not None:
                    self.logs.warning("observer", error=type(error).__name__)
            looks += 1
            if not is_behind or self.follower.position.problem is not None:
                self._over.wait(POLL_S)

    def _tell_changes(self, health: Health) -> None:
        """Log each check whose state has changed."""
        for result in health.checks:
            before, self._reported[result.check] = (
                self._reported.get(result.check, CheckState.OK),
                result.state,
            )
            if self.logs is None or before is result.state:
                continue
            log_method = self.logs.info if result.state is CheckState.OK else self.logs.warning
            log_method(
                "health",
                check=result.check,
                state=result.state.value,
                reason=result.reason,
                next_step=result.next_step,
            )


def build_observer(
    configuration: Configuration,
    environ: Mapping[str, str],
    *,
    log_to: TextIO | None = None,
    queue_depth: QueueDepth | None = None,
    min_free_bytes: int = MIN_FREE_BYTES,
    besides: Sequence[Check] = (),
) -> Observer:
    """Return the observer of one configuration. ``environ`` may name an OTLP endpoint; ``log_to`` None: no
    log.

    ``queue_depth`` returns the number of fixes by state, at each scrape; ``besides``: further checks.
    """
    state, record = configuration.state_dir, configuration.record
    families = Families(CollectorRegistry())
    logs = None if log_to is None else Logs(log_to)
    spans = spans_for(environ)
    live = [taker for taker in (logs, spans) if taker is not None]

    def open_reader() -> Any:
        return open_record(state, record)

    follower = Follower(open_reader, every=[Counting(families)], live=live)
    log = CheckpointLog(checkpoint_dir(state, record))
    figures = Figures(families, follower, open_reader, log, queue_depth=queue_depth)
    checks = Checks((*checks_of(configuration, min_free_bytes=min_free_bytes), *besides))
    return Observer(families, follower, figures, checks, logs=logs, spans=spans)
