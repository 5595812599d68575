"""docs/evaluation/service.md, made of the kept figures."""

from typing import Any

from tests.campaigns.load.campaign import GOAL
from tests.campaigns.load.phases import CLOSED, MIX, OPEN, slope_kb_a_minute


def page(figures: dict[str, Any], asked: dict[str, Any] | None = None) -> str:
    """The page, whole. ``asked``: the figures of `make hostile-http`, where it was run."""
    return _load(figures) + ("" if asked is None else _asked(asked))


def _load(figures: dict[str, Any]) -> str:
    machine, memory, streams = figures["machine"], figures["memory"], figures["streams"]
    ratio = figures["p95_half_over_idle"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    rows = "\n".join(
        _row(name, figures[key])
        for name, key in (
            ("idle", "idle"),
            ("idle, again behind the load", "idle_again"),
            (f"saturated ({CLOSED} connections)", "saturation"),
            ("half of that", "half"),
            (f"a quarter of it, for {memory['minutes']:g} minutes", "memory"),
        )
    )
    met = "met" if ratio <= GOAL else "missed"
    fix, listed, record, again, new = MIX
    return f"""# The service under load

Written by `make load-http ARGS=--report`, by nobody's hand. A second process asks a real
`fallback-tier serve`: {fix} of a hundred requests read a fix, {listed} the list, {record} the record,
{again} are a submission that was sent before, {new} a new one, durable when it is answered. No worker
runs: what is measured is the service. At half of the saturation requests are sent when they are due,
over {OPEN} connections, and a latency counts from then, whether a connection was free or not.

| phase | requests | a second | failed | p50 ms | p95 ms | p99 ms |
|---|---|---|---|---|---|---|
{rows}

- **p95 at half of the saturation, over that of idle (both idle phases together): {ratio:g}**; the goal
  of {GOAL:g} is {met}.
- **Memory**: {memory["first_mb"]:g} MB resident at the beginning of the long phase,
  {memory["last_mb"]:g} at its end, {memory["most_mb"]:g} at most; without the first fifth it changes by
  {memory["slope_kb_a_minute"]:+g} KB a minute (least squares), in its second half by
  {_second_half(memory):+.0f}.
- **Event streams**: {streams["heard_all_in_order"]} of {streams["readers"]} readers at once heard all
  {streams["events"]} events of a fix, once each and in order.

Begun {machine["begun"]}, {machine["seconds"]:,} s in all, on {machine["cores"]} cores that others used
as well: load average {machine["load_before"]:g} before, {machine["load_after"]:g} after; service and
driver at nice {machine["nice"]}. Python {machine["python"]}, {versions}.
"""


def _second_half(memory: dict[str, Any]) -> float:
    """KB a minute, of the points that are kept, which are equally far apart."""
    mb = memory["points_mb"]
    every_s = 60 * memory["minutes"] / max(1, len(mb) - 1)
    half = [(every_s * place, one) for place, one in enumerate(mb)][len(mb) // 2 :]
    return slope_kb_a_minute(half)


def _row(name: str, phase: dict[str, Any]) -> str:
    cells = (
        f"{phase['requests']:,}",
        f"{phase['a_second']:g}" if "a_second" in phase else "",
        f"{phase['failed']:,}",
        *(f"{phase[key]:g}" for key in ("p50_ms", "p95_ms", "p99_ms")),
    )
    return f"| {name} | {' | '.join(cells)} |"


def _asked(asked: dict[str, Any]) -> str:
    statuses = ", ".join(f"{status}: {count:,}" for status, count in asked["statuses"].items())
    some = "" if asked["requests"] >= asked["wanted"] else f" {asked['wanted']:,} were wanted."
    errors = sum(count for status, count in asked["statuses"].items() if status >= "500")
    return f"""
## Requests of every kind

`make hostile-http ARGS=--report`: made by schemathesis {asked["schemathesis"]} from the OpenAPI
document, valid ones and others, round by round over all operations. **{asked["requests"]:,} requests,
{errors} server errors**, each answer as it is described; in {asked["seconds"]:,} s beside others (load
average {asked["load_after"]:g}).{some} By status: {statuses}.
"""
