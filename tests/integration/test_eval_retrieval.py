"""The committed evaluation still holds: its pages follow from code and raw results, and what is quick to
ask again (the lexical variants) answers as it did."""

import json
import lzma
from pathlib import Path

import pytest

from fallback_eval.retrieval.analysis import FIGURES, summary
from fallback_eval.retrieval.data import FILE, load_data, task
from fallback_eval.retrieval.golden import load_golden
from fallback_eval.retrieval.learned import judged_rows, train
from fallback_eval.retrieval.publish import RAW, Folder
from fallback_eval.retrieval.results import Results, load_results
from fallback_eval.retrieval.run import CLAIMS, Options, claims, run
from fallback_eval.retrieval.stores import Stores
from fallback_eval.retrieval.variants import DEFAULT, LEXICAL, code_defaults, variants
from fallback_plugins.solved_examples.search.ranking import shipped
from fallback_plugins.solved_examples.search.retriever import SolvedExampleIndex
from fallback_tier.cli.main import main
from tests.unit.evaluation.planted import Row, write

#: One worker: the corpus is built once.
pytestmark = pytest.mark.xdist_group("eval-retrieval")

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
GOLDEN = ROOT / "tests" / "golden" / "retrieval"
REPORT = ROOT / "docs" / "evaluation" / "retrieval"

#: What is asked again here: seconds, not minutes.
QUICK = ("bm25-only", "lexical")

#: How far a mean may be from the committed one: another SQLite may weigh a tie otherwise.
TOLERANCE = 0.01

#: All raw results together: they are committed, so they must stay small.
MAX_BYTES = 1_000_000

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"the data set is not at {DATA}")


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Results:
    home = tmp_path_factory.mktemp("evaluation")
    options = Options(
        data=DATA, golden=GOLDEN, cache=home, only=QUICK, repeats=1, embeddings=False, units=False
    )
    return run(options, lambda *_: None)


@needs_data
def test_the_golden_set_and_its_corpus_pass_every_check(again: Results) -> None:
    # Loading and building the corpus raised nothing.
    golden = load_golden(GOLDEN)
    assert len(golden.queries) >= 120
    assert len(again.run.corpus) > 400
    asked = {query.query for query in golden.of("dev")}
    assert all(set(answers) == asked for answers in again.answers.values())


@needs_data
@pytest.mark.parametrize("variant", QUICK)
def test_quality_is_what_was_committed(again: Results, variant: str) -> None:
    golden = load_golden(GOLDEN)
    before = summary(load_results(REPORT / RAW), golden, variant)
    now = summary(again, golden, variant)
    for name in FIGURES:
        one, other = before.figures[name], now.figures[name]
        assert one is not None
        assert other is not None
        assert other.mean == pytest.approx(one.mean, abs=TOLERANCE), name
    assert now.abstention.rightly == pytest.approx(before.abstention.rightly, abs=0.1)


@needs_data
def test_without_embeddings_only_lexical_variants_run_and_it_says_so(again: Results) -> None:
    assert "The extra `embeddings` is not installed: only lexical variants ran." in again.run.notes
    assert again.run.parts.keys() == {"chunker", "chunks"}


@needs_data
def test_the_shipped_coefficients_are_what_the_dev_split_gives(tmp_path: Path) -> None:
    # Of words alone: vectors need the extra. They would differ if they had been typed in, or had seen more.
    subject = task(load_golden(GOLDEN), load_data(DATA))
    index = SolvedExampleIndex(
        Stores(tmp_path, subject.corpus, None).of(LEXICAL.chunking, vectors=False),
        settings=LEXICAL.settings,
    )
    wanted = shipped("lexical")
    learned = train(judged_rows(subject, index.search), tuple(wanted.weights), "again")
    assert learned.bias == pytest.approx(wanted.bias, abs=0.01)
    assert learned.weights == pytest.approx(wanted.weights, abs=0.01)


def test_the_committed_pages_follow_from_code_and_results() -> None:
    folder = Folder(REPORT, GOLDEN)
    assert list(folder.faults(code_defaults(), claims())) == []


def test_a_default_that_changes_in_the_code_is_an_alarm() -> None:
    folder = Folder(REPORT, GOLDEN)
    flipped = {**code_defaults(), "retrieval.pool": 51}
    found = "\n".join(folder.faults(flipped, claims()))
    assert "default retrieval.pool is 51 in the code, and " in found


def test_the_raw_results_stay_small() -> None:
    sizes = [
        path.stat().st_size for path in REPORT.rglob("*") if path.suffix in (".jsonl", ".json")
    ]
    assert sum(sizes) < MAX_BYTES


def test_every_default_is_claimed_and_every_variant_differs() -> None:
    settings = [claim.setting for claim in CLAIMS]
    assert sorted(settings) == sorted(code_defaults())
    names = [spec.name for spec in variants()]
    assert len(set(names)) == len(names)
    assert names[0] == DEFAULT.name


# --- The command ----------------------------------------------------------------------------------


def failing(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["eval", "retrieval", *arguments]) == 2
    return capsys.readouterr().err


def test_running_needs_data(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "--data names the folder" in failing(capsys, "--report", str(tmp_path))
    message = failing(capsys, "--data", str(tmp_path), "--golden", str(GOLDEN))
    assert "There is no solved-examples.jsonl.xz in" in message


def test_a_variant_that_is_none_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    message = failing(capsys, "--data", str(tmp_path), "--only", "dreamt")
    assert "There is no variant 'dreamt'" in message
    assert "bm25-only" in message


def test_repeats_are_at_least_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "at least once" in failing(capsys, "--data", str(tmp_path), "--repeats", "0")


def test_a_golden_set_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    message = failing(capsys, "--check", "--golden", str(tmp_path), "--report", str(tmp_path))
    assert "queries.jsonl" in message


def test_without_the_extra_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("fallback_eval.cli.retrieval._EXTRA", ("numpy", "not_installed_here"))
    message = failing(capsys, "--check", "--report", str(tmp_path))
    assert "needs the extra `eval`, and not_installed_here can't be imported" in message
    assert "fallback-tier[eval]" in message


FIX = """\
diff --git a/serve.py b/serve.py
--- a/serve.py
+++ b/serve.py
@@ -1,2 +1,4 @@
 def serve(root, name):
-    return open(root / name)
+    path = (root / name).resolve()
+    path.relative_to(root)
+    return open(path)
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """A data set and a golden set of our own; no embeddings. What the command needs to be told."""
    monkeypatch.setattr("fallback_eval.retrieval.run.load_embedder", lambda **_: None)
    texts = ["Path traversal in serve.", "Cross-site scripting in render.", "Weak hash in login."]
    rows = [
        {
            "id": f"e{number}",
            "summary": text,
            "ecosystem": "PyPI",
            "packages": [f"one-{number}"],
            "language": "python",
            "diff": FIX.replace("serve", f"serve_{number}"),
            "repo": f"owner/{number}",
            "repo_licence": "MIT",
            "fix_commit_url": f"written for the tests, {number}",
        }
        for number, text in enumerate(texts)
    ]
    data = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / FILE).write_bytes(lzma.compress(data.encode()))
    advisory = {
        "ecosystem": "PyPI",
        "summary": "Path traversal when files are served",
        "details": "",
    }

    def ours(queries: list[Row], _: list[Row]) -> None:
        for row in queries:
            own = {**advisory, "package": f"asks-{row['query']}"}
            row.update(record=None, advisory=own)

    golden = write(tmp_path / "golden", ours)
    where = ("--golden", str(golden), "--report", str(tmp_path / "report"), "--json")
    return ("--data", str(tmp_path), "--repeats", "1", "--only", "bm25-only", *where)


def test_run_publish_check_by_the_command(
    capsys: pytest.CaptureFixture[str], small: tuple[str, ...], tmp_path: Path
) -> None:
    report = tmp_path / "report"
    assert main(["eval", "retrieval", *small]) == 0
    assert json.loads(capsys.readouterr().out)["report"] == str(report)
    page = (report / "report.md").read_text()
    assert "only lexical variants ran" in page
    assert "| channels | bm25-only |" in page
    # The default did not run: the check says so, and that is a failure.
    assert main(["eval", "retrieval", "--check", *small]) == 6
    faults = json.loads(capsys.readouterr().out)["faults"]
    assert "the raw results have no variant 'default'" in faults
    assert main(["eval", "retrieval", "--unjudged", *small]) == 0
    assert capsys.readouterr().out == ""  # the small golden set judges everything
    before = (report / "report.md").read_bytes()
    (report / "report.md").write_text("by hand")
    assert main(["eval", "retrieval", "--again", *small]) == 0
    assert (report / "report.md").read_bytes() == before


def test_a_look_at_the_reserved_split_is_noted(small: tuple[str, ...], tmp_path: Path) -> None:
    assert main(["eval", "retrieval", *small]) == 0
    assert not (tmp_path / "report" / "reserved-looks.md").exists()
    assert main(["eval", "retrieval", "--reserved", *small]) == 0
    assert (tmp_path / "report" / "reserved-looks.md").read_text().count("| bm25-only |") == 1
    assert "| bm25-only | reserved |" in (tmp_path / "report" / "report.md").read_text()
