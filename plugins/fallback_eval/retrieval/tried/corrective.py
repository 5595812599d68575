"""The bounded corrective loop: where an answer is below the routing floor, ask otherwise, and again.

After Yan et al., "Corrective Retrieval Augmented Generation", 2024; here the grade is the score in
hand and the rewriting is deterministic, so that no model is asked (ADR-0019 says why it is off).
"""

from dataclasses import replace

from fallback_plugins.solved_examples.interfaces import Question
from fallback_plugins.solved_examples.search import selection
from fallback_plugins.solved_examples.search.ranking import Ranking
from fallback_plugins.solved_examples.search.retriever import SolvedExampleIndex
from fallback_plugins.solved_examples.search.settings import RetrievalSettings
from fallback_plugins.solved_examples.search.weakness import weaknesses

#: Families that a rewritten question names.
_NAMED = 2


def search(
    index: SolvedExampleIndex, question: Question, settings: RetrievalSettings, max_rewrites: int
) -> Ranking:
    """The best of the rankings for the question and at most ``max_rewrites`` rewritings of it.

    Raises ExampleStoreError.
    """
    ranking = index.search(question)
    for times in range(1, max_rewrites + 1):
        other = rewritten(question, times)
        if other is None or selection.routed(ranking, settings):
            break
        again = index.search(other)
        if again.routing > ranking.routing:
            ranking = again
    return ranking


def rewritten(question: Question, times: int) -> Question | None:
    """The question asked otherwise, for the first or second time; None: there is no other way.

    First the advisory's own words with the names of the weakness families they speak of; then these
    names with its title alone.
    """
    profile = weaknesses(question.text, cwe=question.cwe)
    names = sorted(profile, key=lambda name: (-profile[name], name))[:_NAMED]
    if not names or times not in {1, 2}:
        return None
    words = " ".join(name.replace("_", " ") for name in names)
    text = question.text if times == 1 else question.text.strip().partition("\n")[0]
    return replace(question, text=f"{words}\n{text}")
