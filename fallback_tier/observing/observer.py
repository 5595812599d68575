"""Everything that observes, put together: who reads the record, who counts, who tells."""

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

#: How often the record is looked at while nobody asks (seconds): logs and traces are so far behind.
POLL_S = 2.0

#: Every so many looks the checks are run, so that metrics tell of them without a scrape paying for it.
LOOKS_A_CHECK = 8

#: How long the thread is waited for at the end (seconds).
_STOP_S = 10.0

#: Those that HTTP defines; others are counted together.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

#: How a stream of events is declared: it lasts as long as somebody follows.
_STREAM = "/fixes/{fix_id}/events"


@dataclass(eq=False)
class Observer:
    """``start`` it before requests come, ``close`` it after the last. Threads may share it."""

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
        """Follow the record from now on. What it has already is counted, not told."""
        if self.logs is not None:
            self.logs.install()
        self.follower.catch_up(patience_s=0)
        self._thread = threading.Thread(target=self._follow, name="observer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Tell what was recorded until now, and end. Idempotent."""
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
        """A request was answered. ``route``: the path as it is declared, never as it was asked for."""
        method = method if method in _METHODS else "other"
        self.families.http_requests.labels(method, route, str(status)).inc()
        if not route.endswith(_STREAM):
            self.families.http_duration.labels(method, route).observe(seconds)
        if self.logs is not None:
            self.logs.request(method, route, status, seconds)

    def health(self) -> Health:
        """Every check, now or a moment ago."""
        health = self.checks.run()
        for one in health.checks:
            self.families.check_ok.labels(one.check).set(one.state is not CheckState.FAILED)
        self.families.ready.set(health.ready)
        return health

    def metrics(self, accept: str = "") -> tuple[bytes, str]:
        """Prometheus' text, and its content type."""
        self.figures.refresh()
        return self.figures.prometheus(accept)

    def document(self) -> dict[str, Any]:
        """The same as JSON."""
        self.figures.refresh()
        return self.figures.document()

    def _follow(self) -> None:
        looks = 0
        while not self._over.is_set():
            try:
                if looks % LOOKS_A_CHECK == 0:
                    self._tell_changes(self.health())
                is_behind = self.follower.catch_up().behind
            except Exception as error:  # noqa: BLE001 (else nobody would follow any more, in silence)
                is_behind = 0
                if self.logs is not None:
                    self.logs.warning("observer", error=type(error).__name__)
            looks += 1
            if not is_behind or self.follower.position.problem is not None:
                self._over.wait(POLL_S)

    def _tell_changes(self, health: Health) -> None:
        """A check whose state has changed is a line of the log."""
        for one in health.checks:
            before, self._reported[one.check] = (
                self._reported.get(one.check, CheckState.OK),
                one.state,
            )
            if self.logs is None or before is one.state:
                continue
            say = self.logs.info if one.state is CheckState.OK else self.logs.warning
            say(
                "health",
                check=one.check,
                state=one.state.value,
                reason=one.reason,
                next_step=one.next_step,
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
    """For one configuration. ``environ`` may name an OTLP endpoint; ``log_to`` None: no log is written.

    ``queue_depth``: how many fixes stand where, asked at each scrape; ``besides``: further checks.
    """
    state, record = configuration.state_dir, configuration.record
    families = Families(CollectorRegistry())
    logs = None if log_to is None else Logs(log_to)
    spans = spans_for(environ)
    live = [taker for taker in (logs, spans) if taker is not None]

    def opened() -> Any:
        return open_record(state, record)

    follower = Follower(opened, every=[Counting(families)], live=live)
    log = CheckpointLog(checkpoint_dir(state, record))
    figures = Figures(families, follower, opened, log, queue_depth=queue_depth)
    checks = Checks((*checks_of(configuration, min_free_bytes=min_free_bytes), *besides))
    return Observer(families, follower, figures, checks, logs=logs, spans=spans)
