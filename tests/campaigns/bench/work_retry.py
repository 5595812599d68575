"""Prompts of first attempts with retrieved examples, and of their retries (goal 13).

``python work_retry.py PLACE DATA`` makes ``cases.jsonl``: advisories of real fixes in DATA, each with the
examples that a memory of all the others gives for it, by words alone. The package is the one that the
project calls: without any code of interest the examples would be nearly all of a first prompt.

Then, as a worker, ``side`` "first" or "retry" builds one case's prompt a unit, all in turn, over the
project of 200 source files; "retry" also
tells the sizes of both and keeps them in ``prompts.jsonl``, to be counted in tokens.
"""

import hashlib
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

from corpus_prompt import ADVISORY, repository, write_project

Prepared = tuple[Callable[[], None], Callable[[], Mapping[str, Any]]]

#: Advisories asked about, spread evenly over the data.
CASES = 60

_NONCE = "0123456789abcdef" * 2

#: As the gates distil one: what failed, where, and what was tried.
_SUMMARY = """Attempt 1 (rag) failed at gate tests: tests_failed.
tests failed (212 ran)
Failing tests:
- tests.test_settings.SettingsTest.test_a_list_is_read
- tests.test_settings.SettingsTest.test_a_missing_file_is_empty
Assertions:
- AssertionError: None != {'queue': ['mail', 'report'], 'limit': 10}
- AttributeError: 'NoneType' object has no attribute 'items'
Frames inside the repository:
- service/part_7/module_47.py:301 in load_settings_47
What the patch tried:
  service/part_7/module_47.py
  -         return yaml.load(source)
  +         return yaml.safe_load(source.read().strip() or None)
"""


def prepare(place: Path, side: str) -> Prepared:
    """``side``: "first" or "retry"."""
    build = _builder(place / f"retry-{side}")
    cases = [json.loads(line) for line in (place / "cases.jsonl").open()]
    facts = _sizes(place, build, cases) if side == "retry" else {}
    turn = cycle(cases)

    def work() -> None:
        build(next(turn), side)

    return work, lambda: facts


def _sizes(place: Path, build: Callable[..., Any], cases: list[Any]) -> dict[str, Any]:
    pairs = [(build(case, "first"), build(case, "retry")) for case in cases]
    ratios = [retry.byte_count / first.byte_count for first, retry in pairs]
    with (place / "prompts.jsonl").open("w") as kept:
        for first, retry in pairs:
            kept.write(json.dumps([first.system + first.user, retry.system + retry.user]) + "\n")
    quarters = statistics.quantiles(ratios, n=4)
    prefixes = {
        hashlib.sha256(prompt.system.encode()).hexdigest() for pair in pairs for prompt in pair
    }
    return {
        "cases": len(pairs),
        "examples": sum(len(first.examples) for first, _ in pairs),
        "first_bytes_p50": statistics.median(first.byte_count for first, _ in pairs),
        "retry_bytes_p50": statistics.median(retry.byte_count for _, retry in pairs),
        "byte_ratio_quartiles": [round(ratio, 3) for ratio in quarters],
        "byte_ratio_highest": round(max(ratios), 3),
        "cached_prefixes": sorted(prefixes),
        "cached_prefix_bytes": len(pairs[0][0].system.encode()),
    }


def _builder(root: Path) -> Callable[..., Any]:
    from fallback_audit.vocabulary import FailureKind, Tier
    from fallback_plugins.pypi import build_ecosystem
    from fallback_tier.advisory import parse_advisory
    from fallback_tier.outcome import AttemptSummary
    from fallback_tier.prompt.builder import PromptBuilder
    from fallback_tier.retrieval import FewShot

    repo = repository(root, write_project(root))
    failed = AttemptSummary(
        attempt=1,
        tier=Tier.RAG,
        failing_gates=("tests",),
        failure_kind=FailureKind.TESTS_FAILED,
        prior_failure_summary=_SUMMARY,
    )
    # A prompt needs no client of the ecosystem.
    plugin = build_ecosystem(None)  # type: ignore[arg-type]
    builder = PromptBuilder(lambda: _NONCE)

    def build(case: Mapping[str, Any], side: str) -> Any:
        advisory = parse_advisory(json.dumps(case["advisory"]).encode(), "bench")
        if side == "retry":
            return builder.build(advisory, repo, plugin, prior_attempts=(failed,))
        examples = tuple(FewShot.model_validate(shot) for shot in case["examples"])
        return builder.build(advisory, repo, plugin, examples=examples)

    return build


def _cases(place: Path, data: Path) -> Iterator[dict[str, Any]]:
    """Advisories of the data that have an example; their own record is never one."""
    from fallback_plugins.solved_examples.search.retriever import SolvedExampleIndex
    from fallback_plugins.solved_examples.sources.dataset import Imported, read_examples
    from fallback_plugins.solved_examples.store.example_store import ExampleStore
    from fallback_tier.advisory import parse_advisory
    from fallback_tier.retrieval import RagMiss

    records = [read.example for read in read_examples(data) if isinstance(read, Imported)]
    store = ExampleStore(place / "examples.db")
    store.ingest(records)
    index = SolvedExampleIndex(store)
    nothing = repository(place, ())
    asked = [record for record in records if record.ecosystem == "PyPI"]
    for record in asked[:: max(1, len(asked) // CASES)][:CASES]:
        package = {"ecosystem": record.ecosystem, "name": record.package}
        osv = {
            "id": record.advisory_id,
            "modified": "2026-01-01T00:00:00Z",
            "details": record.advisory_text,
            "affected": [{"package": package}],
        }
        advisory = parse_advisory(json.dumps(osv).encode(), "bench")
        found = index.query(advisory, nothing, beyond=frozenset({record.example_id}))
        if not isinstance(found, RagMiss):
            shots = found.examples
            # The text and its examples are real; the project is one that calls the package.
            osv["affected"] = ADVISORY["affected"]
            yield {"advisory": osv, "examples": [shot.model_dump(mode="json") for shot in shots]}


if __name__ == "__main__":
    made = list(_cases(Path(sys.argv[1]), Path(sys.argv[2])))
    (Path(sys.argv[1]) / "cases.jsonl").write_text(
        "".join(json.dumps(case) + "\n" for case in made)
    )
    sys.exit(not made)
