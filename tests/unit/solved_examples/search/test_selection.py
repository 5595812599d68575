"""What of a ranking is shown: everything that is not shown is in the account, with the reason."""

import hashlib
from pathlib import Path

from fallback_plugins.solved_examples.search.retriever import SolvedExampleIndex
from fallback_tier.limits import MAX_EXAMPLES
from fallback_tier.retrieval import RagHit
from tests.fakes.repository import context
from tests.unit.solved_examples.builders import store_at
from tests.unit.solved_examples.search.test_retriever import CODE, FAR, OPEN, advisory, fix


def test_identical_code_beyond_the_first_k_is_told_of(tmp_path: Path) -> None:
    same = {"a.py": hashlib.sha256(CODE.encode()).hexdigest()}
    store = store_at(tmp_path / "examples.db")
    names = [f"e{number}" for number in range(MAX_EXAMPLES + 2)]
    store.ingest([fix(name, FAR, package="thing", file_sha256=same) for name in names])
    answer = SolvedExampleIndex(store, settings=OPEN).query(
        advisory(""), context(tmp_path / "repo", {"a.py": CODE})
    )
    assert isinstance(answer, RagHit)
    assert answer.account is not None
    shown = [shot.example.example_id for shot in answer.examples]
    reported = {one.example_id: one.reason for one in answer.account.dropped}
    assert len(shown) == MAX_EXAMPLES
    assert {*shown, *reported} == set(names)
    assert set(reported.values()) == {f"not among the best {MAX_EXAMPLES}"}
