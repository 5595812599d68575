"""Each campaign in seconds, and what it says without a safeguard. The long way: `make hostile-audit`."""

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from fallback_audit.verifying.verify import verify
from tests.campaigns.hostile.audit.__main__ import main
from tests.campaigns.hostile.audit.campaign import Ask, BrokenRecordError, Campaign, Skipped, Tally
from tests.campaigns.hostile.audit.catalogue import ALL_MINUTES, CATALOGUE
from tests.campaigns.hostile.audit.children import Child
from tests.campaigns.hostile.audit.crash import crash
from tests.campaigns.hostile.audit.faults import failing_files, failing_reads, faults_shortly
from tests.campaigns.hostile.audit.lost_writes import KINDS as KINDS_OF_LOSS
from tests.campaigns.hostile.audit.mutations_rows import ROW_MUTATIONS
from tests.campaigns.hostile.audit.power import Tape, power_shortly, states, unsynced
from tests.campaigns.hostile.audit.promises import Promises
from tests.campaigns.hostile.audit.report import Run as Figures
from tests.campaigns.hostile.audit.report import page
from tests.campaigns.hostile.audit.secrets_planted import (
    KINDS,
    TYPED,
    drawn,
    leaks,
    one_fix,
    secrets,
)
from tests.campaigns.hostile.audit.sequences import sequences
from tests.campaigns.hostile.audit.tamper import CAUGHT, IN_ALL, MUTATIONS, TAIL, VOID, tamper
from tests.campaigns.hostile.audit.trail_folder import TrailFolder, records
from tests.campaigns.hostile.audit.workloads import WORKLOADS
from tests.campaigns.hostile.audit.world import SORTS, world
from tests.integration.contract_sequences import A_STORE
from tests.places import fast_place

Run = Callable[..., Tally]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run_it(campaign: Campaign, count: int, backend: str = "sqlite", *, first: int = 0) -> Tally:
        return _run(campaign, Ask(count, tmp_path, backend=backend, first=first))

    return run_it


@pytest.fixture
def run_in_memory() -> Iterator[Run]:
    """For what fails before a disk is asked."""
    with tempfile.TemporaryDirectory(dir=fast_place()) as place:
        yield lambda campaign, count, **more: _run(campaign, Ask(count, Path(place), **more))


def _run(campaign: Campaign, ask: Ask) -> Tally:
    try:
        return campaign(ask)
    except Skipped as reason:
        pytest.skip(str(reason))


def test_kill_9_loses_nothing_that_was_acknowledged(run: Run) -> None:
    tally = run(crash, 6)
    assert tally.cases == 6
    assert tally.counts["acknowledged events, none lost"] > 6


def test_kill_9_of_writers_and_server_loses_nothing(run: Run) -> None:
    tally = run(crash, 4, "postgres")
    assert tally.cases == 4
    assert tally.counts["acknowledged events, none lost"] > 4


def test_calls_that_fail_lose_nothing(run: Run) -> None:
    tally = run(faults_shortly, 10)
    assert tally.cases == 10
    assert tally.counts["refusals, all typed"] > 2
    assert any(name.startswith("by command: exit code ") for name in tally.counts)
    assert tally.possible is not None
    assert tally.possible > 2_000


def test_a_read_that_fails_is_never_called_damage(run_in_memory: Run) -> None:
    """``commands`` asks for exit code 6. SQLite says of a first page "malformed", and its integrity check
    names what it could not read among what is damaged."""
    tally = run_in_memory(failing_reads, 1_000)
    assert tally.cases == tally.possible
    assert tally.counts["refused"] > 30


def test_a_full_disk_is_never_called_bad_input(run_in_memory: Run) -> None:
    """Of three calls that follow one another, one: no file is opened, written and named with fewer."""
    tally = run_in_memory(failing_files, 1_000, workers=3, worker=1)
    assert tally.cases > 90
    assert tally.counts["refused"] > 80


def test_lost_power_loses_nothing(run: Run) -> None:
    assert run(power_shortly, 12).cases == 12


def test_a_store_that_does_not_sync_is_found_out(run: Run) -> None:
    tally = run(unsynced, 16)
    assert tally.counts["lost"] > 1
    assert tally.counts["kept"] > 1, "nothing was asked of it yet"


def test_every_kind_of_change_is_caught(run: Run) -> None:
    tally = run(tamper, len(MUTATIONS))
    seen = {kind for kind in MUTATIONS for name in tally.counts if name.startswith(f"{kind}: ")}
    assert seen == set(MUTATIONS)
    assert sum(n for name, n in tally.counts.items() if name.endswith(CAUGHT)) > 50
    assert tally.counts["controls, all verify"] >= 2
    assert sum(tally.counts[IN_ALL + outcome] for outcome in (CAUGHT, VOID, TAIL)) == tally.cases


@pytest.mark.parametrize(
    "kind",
    ["other words, all re-chained", "truncated to any length", "an event removed, all re-chained"],
)
def test_without_checkpoints_a_rewritten_chain_passes(kind: str, tmp_path: Path) -> None:
    """So it is the checkpoints that catch it."""
    trail = TrailFolder(tmp_path / "trail")
    events = records("fix")
    with closing(trail.store()) as store:
        for _ in range(20):
            store.append(*next(events))
    assert trail.verify().ok
    ask = Ask(1, tmp_path)
    ROW_MUTATIONS[kind](trail, ask.chance(3))
    assert trail.verify().checkpoint_problem_count > 0
    with trail.reader() as reader:
        report = verify(reader, checkpoints=None, contract=False)
    assert report.integrity_problem_count == 0


def test_the_world_around(run: Run) -> None:
    tally = run(world, len(SORTS))
    assert tally.cases + len(tally.notes) == len(SORTS)


def test_sequences_of_both_sorts(run: Run) -> None:
    tally = run(sequences, 2, first=A_STORE - 1)  # the last of ours, the first foreign one
    assert tally.cases == 2
    assert {name.split(":")[0] for name in tally.counts} == {"ours ended", "foreign, refused"}


def test_no_secret_is_on_record(run: Run) -> None:
    tally = run(secrets, 4, first=len(KINDS) - 2)  # the last in code, the first that a test prints
    assert tally.counts["files and outputs searched"] > 10


def test_no_typed_secret_is_on_record(tmp_path: Path) -> None:
    """Each form in code, in what a test prints, in an answer: in no prompt, event, evidence or output."""
    kinds = range(len(KINDS) - len(TYPED), len(KINDS))
    planted = [
        drawn(kind + place * len(KINDS), Random(kind)) for kind in kinds for place in range(3)
    ]
    assert len(planted) > 500
    found = one_fix(tmp_path, planted, keep_prompts=True)
    assert any(b"return eval(text)" in content for content in found.values()), "no prompt is kept"
    assert leaks(planted, found) == []


def test_a_secret_that_is_on_record_is_found() -> None:
    planted = drawn(2, Random(1))
    assert planted.value in planted.text
    assert leaks([planted], {"a log": f"… {planted.text} …".encode(), "another": b"nothing"}) == [
        f"{KINDS[2][0]!r} of the code, in a log"
    ]


def test_power_is_lost_everywhere_before_it_is_lost_twice(tmp_path: Path) -> None:
    tapes = [Tape(workload, None, [None] * 9) for workload in WORKLOADS[:2]]  # type: ignore[arg-type,list-item]
    found = states(Ask(1, tmp_path), tapes, range(2 * 10 * len(KINDS_OF_LOSS)))
    for _, mine in found:
        assert {state.point for state in mine} == set(range(10))
        assert len({(state.point, state.kind) for state in mine}) == 10 * len(KINDS_OF_LOSS)


def test_a_lost_event_is_noticed(tmp_path: Path) -> None:
    trail, promises = TrailFolder(tmp_path), Promises()
    promises.goes_on(trail)
    assert promises.problem(trail) is None
    promises.take(["event 2 " + "0" * 64])
    assert "lost" in str(promises.problem(trail))


def test_lost_evidence_is_noticed(tmp_path: Path) -> None:
    trail, promises = TrailFolder(tmp_path), Promises()
    promises.goes_on(trail)
    promises.take(["evidence " + "0" * 64])
    assert "evidence is lost" in str(promises.problem(trail))


def test_a_process_that_fails_by_itself_is_no_success() -> None:
    why = "of its own"

    def fail(out: int) -> None:
        raise ValueError(why)

    with pytest.raises(AssertionError, match=why):
        Child(fail).lines()


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = tmp_path / "figures.json"
    messages = ["audit", "--only", "tamper", "--count", "3", "--seed", "7", "--json", str(figures)]
    monkeypatch.setattr("sys.argv", messages)
    assert main() == 0
    (run_of_it,) = json.loads(figures.read_text())
    assert (run_of_it["cases"], run_of_it["seed"]) == (3, 7)


def test_the_page_says_what_a_run_did_not_do(tmp_path: Path) -> None:
    whole = Figures(
        name="tamper",
        backend="sqlite",
        promise="all caught",
        seed=7,
        first=0,
        asked=10,
        cases=10,
        counts={"caught": 10},
        notes=[],
        seconds=0,
        date="2026-01-02",
        commit="abc",
    )
    cut = whole.model_copy(update={"name": "crash", "cases": 4})
    skipped = whole.model_copy(update={"name": "power", "cases": 0, "skipped": "no compiler"})
    for one in (whole, cut, skipped):
        (tmp_path / f"{one.name}.json").write_text(one.model_dump_json(exclude={"seconds"}))
    rows = [line for line in page(tmp_path).splitlines() if "2026-01-02" in line]
    assert rows == [
        "| crash | sqlite | 4 of 10 | 7 | 2026-01-02 | abc | all caught |",
        "| power | sqlite | not run | 7 | 2026-01-02 | abc | nothing: no compiler |",
        "| tamper | sqlite | 10 | 7 | 2026-01-02 | abc | all caught |",
    ]


def test_a_failure_names_seed_and_case(tmp_path: Path) -> None:
    assert "case 4 of seed 9" in str(Ask(1, tmp_path, seed=9).broken(4, "why"))
    assert issubclass(BrokenRecordError, AssertionError)


def test_every_campaign_has_its_count() -> None:
    names = {(entry.name, entry.backend) for entry in CATALOGUE}
    assert len(names) == len(CATALOGUE)
    assert all(entry.cases >= 200 for entry in CATALOGUE)
    assert sum(entry.minutes for entry in CATALOGUE) <= ALL_MINUTES
