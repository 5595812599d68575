"""Why a retrieval answered as it did: read from evidence, compared with the event, safe to print."""

import io
import math
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from fallback_audit.errors import EvidenceError
from fallback_audit.events import RetrievalQueried
from fallback_audit.evidence.account import read_account
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.showing.render import MAX_DROPPED_SHOWN, Renderer, account_lines, fix_json
from fallback_audit.stores.sqlite import open_readonly
from fallback_audit.verifying.report import VerificationReport
from fallback_audit.verifying.verify import verify
from fallback_tier.retrieval import DroppedExample, Floor, RetrievalAccount
from tests.kinds import OfKind
from tests.unit.audit import trails as t
from tests.unit.audit.tamper import build

ACCOUNT = RetrievalAccount(
    mode="hybrid",
    floors=(
        Floor(name="routing", score="cosine", mode="hybrid", value=0.42),
        Floor(name="chunk", score="cosine", mode="hybrid", value=0.3),
    ),
    rewrites=1,
    returned=("e1", "e2"),
    content_sha256={"e1": t.digest("one"), "e2": t.digest("two")},
    scores={"e1": {"cosine": 0.71, "bm25": 12.25}},
    dropped=(
        DroppedExample(example_id="e9", reason="below the chunk floor", scores={"cosine": 0.1}),
    ),
    notes=("\x1b[2Jhostile",),
)


@pytest.fixture
def evidence(tmp_path: Path) -> FileEvidenceStore:
    store = FileEvidenceStore(tmp_path / "evidence")
    store.put(b"patch 1")
    return store


def query(evidence: FileEvidenceStore, content: bytes | None = None) -> RetrievalQueried:
    digest = evidence.put(content or ACCOUNT.model_dump_json().encode())
    event = t.retrieved("e1", "e2").model_copy(update={"account_sha256": digest})
    assert isinstance(event, RetrievalQueried)
    return event


def store_with(tmp_path: Path, event: RetrievalQueried) -> Path:
    events = [event if e.kind == event.kind else e for e in t.model_with_examples()]
    return build(tmp_path / "audit.db", events)


def checked(path: Path, evidence: FileEvidenceStore) -> VerificationReport:
    with closing(open_readonly(path)) as reader:
        return verify(reader, checkpoints=None, evidence=evidence)


def test_scores_floors_and_drops_in_words(evidence: FileEvidenceStore) -> None:
    assert list(account_lines(query(evidence), evidence)) == [
        "mode: hybrid, routing floor: cosine ≥ 0.420, chunk floor: cosine ≥ 0.300",
        "asked again 1 times with other words",
        "returned e1: cosine 0.710, bm25 12.250",
        "returned e2",
        "dropped e9 (below the chunk floor): cosine 0.100",
        "note: \\x1b[2Jhostile",
    ]


def test_many_drops_are_counted(evidence: FileEvidenceStore) -> None:
    many = tuple(DroppedExample(example_id=f"d{i}", reason="x") for i in range(25))
    account = ACCOUNT.model_copy(update={"dropped": many})
    lines = list(account_lines(query(evidence, account.model_dump_json().encode()), evidence))
    assert sum(line.startswith("dropped ") for line in lines) == MAX_DROPPED_SHOWN
    assert f"… and {25 - MAX_DROPPED_SHOWN} more dropped" in lines


def test_a_later_account_with_more_in_it_still_reads(evidence: FileEvidenceStore) -> None:
    content = ACCOUNT.model_dump_json()[:-1] + ',"later": {"a": 1}}'
    account = read_account(query(evidence, content.encode()), evidence)
    assert account is not None
    assert account.content_sha256["e2"] == t.digest("two")


def test_a_score_that_is_no_number_leaves_the_account_readable(
    evidence: FileEvidenceStore,
) -> None:
    """JSON has none: one odd score must not make a trail look forged for good."""
    dropped = DroppedExample(example_id="e9", reason="odd", scores={"cosine": math.nan})
    account = ACCOUNT.model_copy(update={"dropped": (dropped,)})
    event = query(evidence, account.model_dump_json().encode())
    assert "dropped e9 (odd): cosine no number" in account_lines(event, evidence)


def test_show_prints_it_and_json_carries_it(tmp_path: Path, evidence: FileEvidenceStore) -> None:
    with closing(open_readonly(store_with(tmp_path, query(evidence)))) as reader:
        events = list(reader.events())
    out = io.StringIO()
    Renderer(Console(file=out, width=200)).render_fix(events, evidence)
    document = fix_json(events, evidence)
    assert document["retrievals"][0]["account"]["dropped"][0]["example_id"] == "e9"
    assert "│ returned e1: cosine 0.710" in out.getvalue()
    assert "retrievals" not in fix_json(events)


def test_an_account_of_this_answer_is_intact(tmp_path: Path, evidence: FileEvidenceStore) -> None:
    report = checked(store_with(tmp_path, query(evidence)), evidence)
    assert (report.ok, report.evidence_checked) == (True, 2)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{}", "is no account of a retrieval"),
        (b"not json", "is no account of a retrieval"),
        (ACCOUNT.model_copy(update={"returned": ("e1",)}).model_dump_json().encode(), "another"),
    ],
)
def test_an_account_of_something_else_is_found(
    tmp_path: Path, evidence: FileEvidenceStore, content: bytes, words: str
) -> None:
    event = query(evidence, content)
    report = checked(store_with(tmp_path, event), evidence)
    assert [words in problem.reason for problem in report.evidence_problems] == [True]
    assert any(words in line for line in account_lines(event, evidence))


def test_a_missing_account_is_found_and_shown(tmp_path: Path, evidence: FileEvidenceStore) -> None:
    event = query(evidence)
    digest = event.account_sha256
    assert digest is not None
    (tmp_path / "evidence" / digest[:2] / digest[2:]).unlink()
    with pytest.raises(EvidenceError, check=OfKind("missing")):
        read_account(event, evidence)
    (line,) = account_lines(event, evidence)
    assert line.startswith(f"why: Evidence {digest} is missing")
    path = store_with(tmp_path, event)
    assert not checked(path, evidence).ok
    with closing(open_readonly(path)) as reader:
        document = fix_json(reader.events(), evidence)
    assert "missing" in document["retrievals"][0]["problem"]
