"""A default that no figure justifies, or that changed since, is an alarm; so is a page edited by hand."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fallback_eval.retrieval.defaults import Basis, Bound, Claim
from fallback_eval.retrieval.publish import Folder
from tests.unit.evaluation.planted import write
from tests.unit.evaluation.runs import CODE, run_all

#: One worker: what is published and looked at is made once.
pytestmark = pytest.mark.xdist_group("published-defaults")

CLAIMS = (
    Claim("k", Basis.CONTRACT, "What a prompt has room for.", ("same-as-default",)),
    Claim("mode", Basis.QUALITY, "It finds more.", ("bm25-only", "embeddings-only", "cross")),
    Claim("routing_floor", Basis.SAFETY, "Just below.", bound=Bound("same-as-default", "routing")),
)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    home = tmp_path_factory.mktemp("evaluation")
    folder = Folder(home / "pages", write(home / "golden"))
    run_all(folder.golden).save(folder.path / "raw")
    folder.publish(CODE, CLAIMS)
    return folder


def alarms(folder: Folder, code: Mapping[str, Any] = CODE, claims: Sequence[Claim] = CLAIMS) -> str:
    return "\n".join(folder.faults(code, claims))


def test_what_was_published_follows(published: Folder) -> None:
    assert alarms(published) == ""


@pytest.mark.parametrize(
    ("setting", "flipped"), [("k", 5), ("mode", "lexical"), ("routing_floor", 0.3)]
)
def test_a_flipped_default_is_an_alarm(published: Folder, setting: str, flipped: object) -> None:
    found = alarms(published, {**CODE, setting: flipped})
    assert f"default {setting} is " in found
    assert "was measured" in found
    # The table says the old value, too.
    assert "defaults.md, line " in found


def test_a_default_without_a_row_is_an_alarm(published: Folder) -> None:
    found = alarms(published, {**CODE, "new": 1})
    assert "default new has 0 rows" in found
    assert "default new was not there when the results were made" in found
    assert "a row for k, which the code does not have" in alarms(
        published, {name: value for name, value in CODE.items() if name != "k"}
    )


def changed(place: int, **fields: Any) -> tuple[Claim, ...]:
    return tuple(
        replace(claim, **fields) if at == place else claim for at, claim in enumerate(CLAIMS)
    )


CLAIM_FAULTS: dict[str, tuple[Sequence[Claim], str]] = {
    "twice": ((*CLAIMS, CLAIMS[0]), "default k has 2 rows"),
    "no reason": (changed(0, reason=" "), "the row of k gives no reason"),
    "not run": (changed(1, alternatives=("dreamt",)), "the alternative 'dreamt' was not run"),
    "quality without figures": (changed(1, alternatives=("cross",)), "no alternative was run"),
    "no alternative": (
        changed(0, alternatives=("bm25-only",)),
        "k: 'bm25-only' has the default's own value",
    ),
    "bound not run": (
        changed(2, bound=Bound("dreamt", "chunk")),
        "its bound is read from 'dreamt', which was not run",
    ),
}


@pytest.mark.parametrize("fault", CLAIM_FAULTS)
def test_a_claim_without_evidence_is_an_alarm(fault: str, published: Folder) -> None:
    claims, message = CLAIM_FAULTS[fault]
    assert message in alarms(published, claims=claims)


def test_a_better_alternative_is_an_alarm(tmp_path: Path) -> None:
    folder = Folder(tmp_path, write(tmp_path / "golden"))
    results = run_all(folder.golden)
    swapped = {
        name: {query: answer.model_copy(update={"variant": name}) for query, answer in one.items()}
        for name, one in (
            results.answers
            | {
                "default": results.answers["bm25-only"],
                "bm25-only": results.answers["default"],
            }
        ).items()
    }
    replace(results, answers=swapped).save(tmp_path / "raw")
    assert "mode: 'bm25-only' is better than the default" in alarms(folder)
    excused = alarms(folder, claims=changed(1, despite="It costs nothing."))
    assert "mode: 'bm25-only' is better" not in excused


def test_a_floor_above_what_is_relevant_is_an_alarm(published: Folder) -> None:
    # Relevant queries were routed with 0.5; the chunks have scores of 1 and 1/2.
    assert "it refuses what is right" in alarms(published, {**CODE, "routing_floor": 0.51})
    assert "it refuses what is right" not in alarms(published, {**CODE, "routing_floor": 0.5})
    assert "it is not just below" not in alarms(published, {**CODE, "routing_floor": 0.49})
    assert "it is not just below" in alarms(published, {**CODE, "routing_floor": 0.4})
    chunk = changed(2, bound=Bound("bm25-only", "chunk"))
    # e2 (1.0) is wrong; e1 (1/2) and e0 (1/3) are relevant.
    assert "lowest relevant score is 0.3333" in alarms(
        published, {**CODE, "routing_floor": 0.4}, chunk
    )
    excused = changed(2, despite="On purpose.")
    assert "refuses" not in alarms(published, {**CODE, "routing_floor": 0.51}, excused)


def copy_of(published: Folder, place: Path) -> Folder:
    folder = Folder(place / "pages", write(place / "golden"))
    for path in published.path.rglob("*"):
        target = folder.path / path.relative_to(published.path)
        if path.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    return folder


@pytest.fixture
def copied(published: Folder, tmp_path: Path) -> Folder:
    return copy_of(published, tmp_path)


def test_a_copy_of_what_was_published_follows_too(copied: Folder) -> None:
    assert alarms(copied) == ""


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


TAMPERED: dict[str, tuple[Callable[[Folder], object], str]] = {
    "a figure": (
        lambda folder: edit(folder.path / "report.md", "1.000", "0.999"),
        "report.md, line ",
    ),
    "a value": (
        lambda folder: edit(folder.path / "defaults.md", "| 4 |", "| 5 |"),
        "defaults.md, line ",
    ),
    "a page cut short": (
        lambda folder: (folder.path / "report.md").write_text(
            "# Retrieval of solved examples, evaluated\n"
        ),
        "report.md is not what the raw results give",
    ),
    "an answer": (
        lambda folder: edit(folder.path / "raw" / "rankings.jsonl", '"ids":[0,1,2]', '"ids":[2]'),
        "is not what the raw results give",
    ),
    "a query": (
        lambda folder: edit(folder.golden / "queries.jsonl", "Check the path.", "Check it."),
        "raw/ was made with other queries",
    ),
    "the other split's answers": (
        lambda folder: run_all(folder.golden, split="reserved").save(folder.path / "raw"),
        "raw/ has answers to other queries than those of the dev split",
    ),
    "a query's own record in the corpus": (
        lambda folder: edit(folder.path / "raw" / "run.json", '"e3"', '"e3", "REC-q1"'),
        "raw/ was made over a corpus that has the query 'REC-q1' itself",
    ),
    "a judged example gone from the corpus": (
        lambda folder: edit(folder.path / "raw" / "run.json", '"e0"', '"e9"'),
        "raw/ was made over a corpus without 'e0', which is judged",
    ),
    "the page in one file": (
        lambda folder: edit(folder.path / "report.html", "1.000", "0.999"),
        "report.html, line ",
    ),
    "a plot": (
        lambda folder: edit(folder.path / "quality.svg", "</svg>", "<text>!</text></svg>"),
        "report.html, line ",
    ),
    "a plot gone": (
        lambda folder: (folder.path / "latency.svg").unlink(),
        "latency.svg is not there",
    ),
    "a page of other bytes": (
        lambda folder: (folder.path / "report.md").write_bytes(b"\xff\n"),
        "report.md, line 1",
    ),
    "a grade": (
        lambda folder: edit(folder.golden / "judgements.jsonl", '"grade": 2', '"grade": 1'),
        "report.md, line ",
    ),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_page_that_does_not_follow_is_an_alarm(what: str, copied: Folder) -> None:
    tamper, message = TAMPERED[what]
    tamper(copied)
    assert message in alarms(copied)


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [
            value or "" for name, value in attrs if name in ("src", "href", "xlink:href")
        ]


def test_the_html_page_stands_alone(published: Folder) -> None:
    page = (published.path / "report.html").read_text()
    links = _Links()
    links.feed(page)
    assert all(one.startswith("#") for one in links.fetched)
    assert links.tags.count("svg") == 4
    assert "script" not in links.tags
    assert "<code>default</code>" in page


def test_plots_and_pages_are_the_same_each_time(copied: Folder) -> None:
    before = {path: path.read_bytes() for path in copied.path.iterdir() if path.is_file()}
    assert len([path for path in before if path.suffix == ".svg"]) == 4
    copied.publish(CODE, CLAIMS)
    assert {path: path.read_bytes() for path in before} == before


def test_a_look_at_the_reserved_split_leaves_a_line(copied: Folder) -> None:
    reserved = run_all(copied.golden, split="reserved", names=("default", "bm25-only"))
    when = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    for _ in range(2):
        reserved.save(copied.path / "raw-reserved")
        copied.note_look(reserved, CODE, when)
    looks = (copied.path / "reserved-looks.md").read_text()
    assert looks.count("| 2026-01-02 03:04 |") == 2
    assert "default, bm25-only |" in looks
    assert (
        "Reserved split. (second table)" in copied.pages(copied.evidence(CODE, CLAIMS))["report.md"]
    )
    other = {**CODE, "k": 5}
    copied.note_look(reserved, other, when)
    settings = {line.split(" | ")[1] for line in looks.splitlines() if "2026-01-02" in line}
    last = (copied.path / "reserved-looks.md").read_text().splitlines()[-1]
    assert last.split(" | ")[1] not in settings


LOOKED_AT: dict[str, tuple[Callable[[Folder], object], str]] = {
    "no look was noted": (
        lambda folder: (folder.path / "reserved-looks.md").unlink(),
        "reserved-looks.md has no line for the look that raw-reserved/ was made in",
    ),
    "of other settings": (
        lambda folder: edit(folder.path / "raw-reserved" / "run.json", '"k": 4', '"k": 9'),
        "raw-reserved/ was made with other defaults than the code has",
    ),
    "over another corpus": (
        lambda folder: edit(folder.path / "raw-reserved" / "run.json", "0" * 64, "1" * 64),
        "raw-reserved/ was made over another corpus than raw/",
    ),
    "of the dev split": (
        lambda folder: run_all(folder.golden).save(folder.path / "raw-reserved"),
        "raw-reserved/ has answers to other queries than those of the reserved split",
    ),
}


@pytest.fixture(scope="module")
def final(published: Folder, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """With the final table, and the look that it was made in."""
    folder = copy_of(published, tmp_path_factory.mktemp("final"))
    reserved = run_all(folder.golden, split="reserved", names=("default", "bm25-only"))
    folder.note_look(reserved, CODE, datetime(2026, 1, 2, tzinfo=UTC))
    reserved.save(folder.path / "raw-reserved")
    folder.publish(CODE, CLAIMS)
    return folder


def test_a_copy_of_the_final_table_follows_too(final: Folder, tmp_path: Path) -> None:
    assert alarms(copy_of(final, tmp_path)) == ""


@pytest.mark.parametrize("what", LOOKED_AT)
def test_a_final_table_of_something_else_is_an_alarm(
    what: str, final: Folder, tmp_path: Path
) -> None:
    looked_at = copy_of(final, tmp_path)
    tamper, message = LOOKED_AT[what]
    tamper(looked_at)
    assert message in alarms(looked_at)


def test_better_than_what_did_not_run_is_not_said(published: Folder) -> None:
    page = (published.path / "defaults.md").read_text()
    assert "cross: not run | Better than each that ran." in page
    ran = changed(1, alternatives=("bm25-only", "embeddings-only"))
    pages = published.pages(published.evidence(CODE, ran))
    assert "Better than every alternative." in pages["defaults.md"]
