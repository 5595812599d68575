"""Building the prompt of a first attempt, and reading the same files once: each in a process of its own.

A build begins with the advisory in memory and the repository on disk: every source file is read, ranked
and parted anew, nothing is kept from one prompt to the next.
"""

import json
import secrets
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from corpus_prompt import ADVISORY, CALL, repository, write_project

Prepared = tuple[Callable[[], None], Callable[[], Mapping[str, Any]]]


def prepare(place: Path, side: str) -> Prepared:
    """``side``: "build" (ours) or "read" (every file of the project once, and no more)."""
    root = place / side
    paths = write_project(root)
    sizes = {"files": len(paths), "bytes": sum((root / path).stat().st_size for path in paths)}
    if side == "build":
        return _build(root, paths, sizes)

    def read() -> None:
        for path in paths:
            (root / path).read_text()

    return read, lambda: sizes


def _build(root: Path, paths: tuple[str, ...], sizes: Mapping[str, int]) -> Prepared:
    from fallback_plugins.pypi import build_ecosystem
    from fallback_tier.advisory import parse_advisory
    from fallback_tier.prompt.builder import PromptBuilder

    advisory = parse_advisory(json.dumps(ADVISORY).encode(), "bench")
    repo = repository(root, paths)
    # A prompt needs no client of the ecosystem.
    plugin = build_ecosystem(None)  # type: ignore[arg-type]
    builder = PromptBuilder(lambda: secrets.token_hex(16))
    walls: list[float] = []
    cpus: list[float] = []
    facts: dict[str, Any] = {**sizes}

    def build() -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        prompt = builder.build(advisory, repo, plugin)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
        if CALL not in prompt.user:
            raise SystemExit("the vulnerable call is not in the prompt")
        facts["prompt_bytes"], facts["snippets"] = prompt.byte_count, len(prompt.snippets)

    def report() -> Mapping[str, Any]:
        # The first one imports what the process needs; that is in the row of whole processes.
        wall, cpu = (round(statistics.median(each[1:]) * 1000, 2) for each in (walls, cpus))
        return {**facts, "wall_ms_p50": wall, "cpu_ms_p50": cpu}

    return build, report
