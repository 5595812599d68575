"""The corrective loop, tried and off: around the retriever, and bounded."""

from pathlib import Path

import pytest

from fallback_eval.retrieval.alternatives import search
from fallback_plugins.solved_examples.interfaces import Question
from fallback_plugins.solved_examples.search.ranking import Ranking
from fallback_plugins.solved_examples.search.retriever import SolvedExampleIndex
from fallback_plugins.solved_examples.search.settings import RetrievalSettings
from fallback_tier.retrieval import Floor
from tests.unit.solved_examples.builders import example, store_at

ASKED = Question("Reading ../ leaves\nthe area: path traversal")


class Counting(SolvedExampleIndex):
    """Remembers what it was asked."""

    asked: tuple[str, ...] = ()

    def search(self, question: Question) -> Ranking:
        self.asked += (question.text,)
        return super().search(question)


@pytest.mark.parametrize(
    ("floor", "rewrites", "times"), [(2.0, 0, 1), (2.0, 1, 2), (2.0, 9, 3), (0.0, 2, 1)]
)
def test_it_asks_otherwise_only_below_the_floor_and_at_most_twice(
    tmp_path: Path, floor: float, rewrites: int, times: int
) -> None:
    store = store_at(tmp_path / "examples.db")
    store.ingest([example("e", advisory_text="Path traversal: containment of the served folder")])
    floors = (Floor(name="routing", score="bm25", mode="lexical", value=floor),)
    settings = RetrievalSettings(mode="lexical", floors=floors)
    index = Counting(store, settings=settings)
    ranking = search(index, ASKED, settings, rewrites)
    assert len(index.asked) == times == len(set(index.asked))
    assert ranking.routing >= index.search(ASKED).routing
