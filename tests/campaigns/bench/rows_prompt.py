"""What goes before a model's call: building the prompt, fencing, and a retry's size (goal 13)."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.campaigns.bench.measure import BenchError, Command, Worker
from tests.campaigns.bench.row import Bench, Figure, Pair, Row

_HERE = Path(__file__).parent
_WORKER = _HERE / "worker.py"

#: Real fixes, beside the checkout.
_DATA = _HERE.parents[3] / "shared" / "data" / "solved-examples.jsonl.xz"

#: Half of the prompts of a project with 200 source files are built within so many milliseconds.
BUILD_MS = 20

#: Fencing goes through 20 MB and more a second.
FENCE_MS_PER_MB = 50

#: No text of a megabyte or less takes longer.
FENCE_WORST_MS = 50

#: A retry's prompt against the first attempt's, where that had examples.
RETRY_RATIO = 0.7


@contextmanager
def prompt_build(bench: Bench) -> Iterator[Pair]:
    """A first attempt's prompt from 200 source files, against reading those files once: the floor."""
    with _pair(
        bench,
        "work_prompt",
        ("PromptBuilder.build", "build"),
        ("reading the files once", "read"),
        figures=lambda ours: [Figure("p50 of a build", ours["wall_ms_p50"], BUILD_MS, " ms")],
    ) as pair:
        yield pair


@contextmanager
def fence_speed(bench: Bench) -> Iterator[Pair]:
    """A megabyte of code, logs, prose and attacks, against SHA-256 of the same bytes."""
    with _fencing(bench, "mixed", "processor time a MB", "cpu_ms_per_mb", FENCE_MS_PER_MB) as pair:
        yield pair


@contextmanager
def fence_worst(bench: Bench) -> Iterator[Pair]:
    """Texts of a megabyte made to be slow; the figure is the slowest one's."""
    with _fencing(bench, "worst", "slowest text", "slowest_cpu_ms", FENCE_WORST_MS) as pair:
        yield pair


@contextmanager
def retry_tokens(bench: Bench) -> Iterator[Pair]:
    """A retry's prompt against the first attempt's with its examples: the figures are sizes.

    Sixty real advisories with the examples that a memory of the other fixes has for each; the sides are
    the building of one such prompt. The system block, which is the cached prefix, has to be the same
    bytes in all of them.
    """
    if not _DATA.is_file():
        raise BenchError("../shared/data/solved-examples.jsonl.xz is not here")
    Command([bench.python, _HERE / "work_retry.py", bench.place, _DATA], bench.place).run()
    counted = bench.place / "tokens.json"
    count = [bench.peer("python"), _HERE / "count_tokens.py", bench.place / "prompts.jsonl"]

    def figures(ours: Mapping[str, Any]) -> list[Figure]:
        return [
            Figure("bytes, median ratio", ours["byte_ratio_quartiles"][1], RETRY_RATIO),
            Figure("tokens, median ratio", json.loads(counted.read_text())["ratio"], RETRY_RATIO),
        ]

    with _pair(
        bench,
        "work_retry",
        ("a retry's prompt", "retry"),
        ("the first one's, with examples", "first"),
        figures=figures,
    ) as pair:

        def check() -> None:
            if len(pair.facts()["ours"]["cached_prefixes"]) != 1:
                raise BenchError("the cached prefix is not the same in all prompts")
            Command(count, bench.place, stdout=counted).run()

        def facts() -> dict[str, Any]:
            return {**pair.facts(), "tokens": json.loads(counted.read_text())}

        yield replace(pair, check=check, facts=facts)


@contextmanager
def _fencing(bench: Bench, texts: str, name: str, fact: str, limit: float) -> Iterator[Pair]:
    with _pair(
        bench,
        "work_fence",
        ("fence", "fence", texts),
        ("SHA-256 of the same bytes", "hash", texts),
        figures=lambda ours: [Figure(name, ours[fact], limit, " ms")],
    ) as pair:
        yield pair


@contextmanager
def _pair(
    bench: Bench,
    module: str,
    ours: Sequence[str],
    theirs: Sequence[str],
    figures: Callable[[Mapping[str, Any]], Sequence[Figure]],
) -> Iterator[Pair]:
    """Two sides of one worker module, each as (label, option, …), both in our environment."""

    def work(label: str, *options: str) -> Worker:
        return Worker(label, [bench.python, _WORKER, module, bench.place, *options], bench.place)

    with work(*ours) as first, work(*theirs) as second:
        yield Pair(
            first,
            second,
            facts=lambda: {"ours": first.facts, "theirs": second.facts},
            figures=lambda: figures(first.facts),
        )


ROWS = (
    Row("prompt-build", "Prompt of a project with 200 source files", "3", None, 11, prompt_build),
    Row("fence-speed", "Fence a megabyte of mixed text", "3", None, 7, fence_speed),
    Row("fence-worst", "Fence what is made to be slow", "3", None, 3, fence_worst),
    Row("retry-tokens", "A retry's prompt against the first one's", "13", None, 3, retry_tokens),
)
