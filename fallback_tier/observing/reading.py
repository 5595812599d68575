"""The metrics as they are asked for: Prometheus' text, JSON, or the current figures."""

from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import KW_ONLY, dataclass
from importlib.metadata import version
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.errors import AuditError
from fallback_tier.errors import FallbackError
from fallback_tier.observing.chain import ChainLag, chain_lag
from fallback_tier.observing.families import Families
from fallback_tier.observing.following import Follower
from fallback_tier.wiring.trail import ReadOnlyTrail

#: A state's name, or a member of a vocabulary, and how many stand there.
QueueDepth = Callable[[], Mapping[Any, int]]


@dataclass(frozen=True)
class Figures:
    """Asked for, they are as the record is now: it is read first."""

    families: Families
    follower: Follower
    open_reader: Callable[[], ReadOnlyTrail | None]
    log: CheckpointLog
    _: KW_ONLY
    queue_depth: QueueDepth | None = None

    def __post_init__(self) -> None:
        self.families.build.labels(version("fallback-tier")).set(1)

    def refresh(self) -> None:
        """Read what was recorded since. Raises nothing of the record's: a metric tells it."""
        families, position = self.families, self.follower.catch_up()
        families.trail_behind.set(position.behind)
        readable = position.problem is None
        try:
            lag = self._lag()
        except AuditError:
            readable = False
        else:
            families.chain_events.set(lag.last)
            families.chain_lag.set(lag.events)
            families.chain_lag_seconds.set(lag.seconds)
        families.trail_readable.set(readable)
        self._look_at_the_queue()

    def _look_at_the_queue(self) -> None:
        """Where it can't be read there is no figure, rather than an old one."""
        self.families.queue_depth.clear()
        if self.queue_depth is not None:
            with suppress(FallbackError):
                for state, count in self.queue_depth().items():
                    self.families.queue_depth.labels(str(state)).set(count)

    def prometheus(self, accept: str = "") -> tuple[bytes, str]:
        """The text for what a scraper accepts, and its content type. ``refresh`` first."""
        encode, content_type = choose_encoder(accept)
        return encode(self.families.registry), content_type

    def document(self) -> dict[str, Any]:
        """The same as JSON. ``refresh`` first."""
        return as_document(self.families.registry)

    def _lag(self) -> ChainLag:
        reader = self.open_reader()
        if reader is None:
            return ChainLag()
        with closing(reader):
            return chain_lag(reader, self.log)


def as_document(registry: CollectorRegistry) -> dict[str, Any]:
    """``{name: {type, help, samples: [{labels, value}]}}``; of a histogram its sum and count."""
    found: dict[str, Any] = {}
    for family in registry.collect():
        samples = [
            {"name": sample.name, "labels": dict(sample.labels), "value": sample.value}
            for sample in family.samples
            if not sample.name.endswith(("_bucket", "_created"))
        ]
        found[family.name] = {"type": family.type, "help": family.documentation, "samples": samples}
    return {"metrics": found}
