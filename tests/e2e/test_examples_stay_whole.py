"""A table keeps its rows and a rule its exception, from the store into the request to the model.

Records are ingested, the memory is asked by the tier, the prompt is built, and what was *sent* is
looked at. Each case runs twice: with the product's chunker, and with a splitter of fixed size in its
place, which must raise the alarm; otherwise the case would prove nothing.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from fallback_eval.retrieval.fixed_size import FixedSizeSplitter
from fallback_plugins.solved_examples.search.retriever import SolvedExampleIndex
from fallback_plugins.solved_examples.search.selection import passage
from fallback_plugins.solved_examples.store.example_store import ExampleStore
from fallback_tier.advisory import Advisory
from fallback_tier.outcome import SearchReplace
from fallback_tier.repo import RepoContext
from fallback_tier.retrieval import RagMiss, Retrieval, SolvedExample
from tests.fixtures.examples import WRITTEN
from tests.fixtures.fallback_tier_callable import PLAN, FallbackTierCallable

#: About 130 words: the smallest size in common use, so that no case has to be long.
FIXED = FixedSizeSplitter(128, 16)

FILLER = "\n\n".join(
    f"Part {number} of the report tells of the release process, who was told when, how the build "
    "servers were audited afterwards, and why the team moved its announcements to another list. "
    "Nothing in it bears on the cause. It is kept for those who have to document the case."
    for number in range(12)
)

TABLE = "\n".join(
    [
        "| vulnerable version | reads files outside its folder when |",
        "|---|---|",
        *(
            f"| {major}.{minor} | it joins a user-supplied name and `check_{major}{minor}` is off |"
            for major in range(1, 4)
            for minor in range(5)
        ),
    ]
)

RULE = "\n".join(
    [
        "Every server whose read_file joins a user-supplied name reads files outside its folder if it:",
        "",
        *(
            f"- takes the name from source {number} of the request, decodes it, and joins it to the folder"
            for number in range(12)
        ),
        "",
        "Servers that set `strict_names` are not affected: they refuse such a name.",
    ]
)


def record(example_id: str, text: str) -> SolvedExample:
    return SolvedExample(
        example_id=example_id,
        advisory_id=example_id,
        advisory_text=text,
        ecosystem="PyPI",
        package=f"package-{example_id}",
        language="python",
        edits=(SearchReplace(path="a.py", old=f"open({example_id!r})", new="open(safe())"),),
        file_sha256={},
        provenance=WRITTEN,
        licence="Apache-2.0",
    )


def report(block: str) -> str:
    return f"A server reads outside its folder\n\n{FILLER}\n\n## Who is affected\n\n{block}\n\n{FILLER}\n"


OTHERS = tuple(
    record(f"other-{number}", f"Cookie {number} of the session never expires. {FILLER}")
    for number in range(6)
)


@dataclass
class CutAnywhere:
    """The memory as it would be if passages were taken from chunks of fixed size."""

    index: SolvedExampleIndex

    def query(
        self, advisory: Advisory, repo_ctx: RepoContext, *, beyond: frozenset[str] = frozenset()
    ) -> Retrieval:
        answer = self.index.query(advisory, repo_ctx, beyond=beyond)
        if isinstance(answer, RagMiss):
            return answer
        shots = []
        for shot in answer.examples:
            words = set(advisory.text.lower().split())
            ranked = sorted(
                FIXED.chunks(shot.example),
                key=lambda chunk: -len(words & set(chunk.text.lower().split())),
            )
            text = passage(shot.example, ranked=ranked, units=FIXED.units).text
            shots.append(shot.model_copy(update={"text": text}))
        return answer.model_copy(update={"examples": tuple(shots)})


def sent(root: Path, block: str, *, fixed: bool) -> str:
    """The solved example with the block, as the request to the model quotes it."""
    store = ExampleStore(root / "memory.sqlite", chunker=FIXED if fixed else None)
    store.ingest([record("wanted", report(block)), *OTHERS])
    index = SolvedExampleIndex(store)
    call = FallbackTierCallable(root / "repo", answers=[PLAN])
    call.retriever = CutAnywhere(index) if fixed else index
    (prompt,) = call().prompts
    fences = re.findall(
        r"<<<UNTRUSTED \S+ solved_example.*?>>>\n(.*?)\n<<<END", prompt, flags=re.DOTALL
    )
    (fence,) = (text for text in fences if text.startswith("| example wanted,"))
    assert "<<<CUT" not in fence
    return "\n".join(line.removeprefix("| ") for line in fence.split("\n"))


def assert_whole(shown: str, block: str) -> None:
    """The block stands there, line after line."""
    assert block in shown, "the block is cut, or not there"


@pytest.mark.parametrize("block", [TABLE, RULE], ids=["table", "rule"])
def test_it_is_sent_whole(tmp_path: Path, block: str) -> None:
    shown = sent(tmp_path, block, fixed=False)
    assert_whole(shown, block)
    assert "## Who is affected\n\n" + block in shown
    assert "[…]" in shown  # there was something to choose from


@pytest.mark.parametrize("block", [TABLE, RULE], ids=["table", "rule"])
def test_with_a_fixed_size_the_alarm_is_raised(tmp_path: Path, block: str) -> None:
    shown = sent(tmp_path, block, fixed=True)
    lines = [line for line in block.split("\n") if line]
    assert any(line in shown for line in lines)  # cut, not left out
    with pytest.raises(AssertionError, match="the block is cut"):
        assert_whole(shown, block)


@pytest.mark.parametrize("block", [TABLE, RULE], ids=["table", "rule"])
def test_it_is_stored_in_one_chunk(tmp_path: Path, block: str) -> None:
    wanted = record("wanted", report(block))
    assert any(block in chunk.text for chunk in ExampleStore(tmp_path / "m").chunker.chunks(wanted))
    assert not any(block in chunk.text for chunk in FIXED.chunks(wanted))
