"""A side's figures come from the operating system, and only for work that was done."""

import os
import re
import resource
import sys
from pathlib import Path

import pytest

from tests.campaigns.bench.measure import BenchError, Command, Processes, Worker, peak_floor_bytes
from tests.kinds import RaisedIn

MIB = 2**20


def python(program: str, place: Path, **options: object) -> Command:
    return Command([sys.executable, "-c", program], place, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [1, 3])
def test_another_exit_code_is_no_figure(tmp_path: Path, code: int) -> None:
    with pytest.raises(BenchError, match=rf" {code}, .* 0\b"):
        python(f"raise SystemExit({code})", tmp_path).run()


def test_an_exit_code_that_is_expected_is_a_figure(tmp_path: Path) -> None:
    sample = python("raise SystemExit(3)", tmp_path, exit_code=3).run()
    assert sample.wall_s > 0
    with pytest.raises(BenchError, match="exit code 0, not 3"):
        python("", tmp_path, exit_code=3).run()


def test_a_program_that_is_not_there_is_no_figure(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=re.escape(str(tmp_path / "nothing"))):
        Command([tmp_path / "nothing"], tmp_path).run()


def test_a_hang_is_no_figure(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="exit code -9"):
        python("import time; time.sleep(600)", tmp_path).run(timeout_s=0.2)


def own_peak_mib() -> int:
    """A child starts with its parent's high-water mark: sizes are told apart above that only."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def test_memory_and_processor_time_include_children(tmp_path: Path) -> None:
    size = own_peak_mib() + 96
    work = f"sum(range(10**6)); bytearray({size} * 2**20)"
    idle = python("", tmp_path).run()
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}], check=True)"
    busy = python(parent, tmp_path).run()
    assert busy.peak_bytes > size * MIB
    assert busy.peak_bytes > idle.peak_bytes
    assert busy.cpu_s > 0


def test_input_and_output_are_the_files_that_are_named(tmp_path: Path) -> None:
    source, sink = tmp_path / "in", tmp_path / "out"
    source.write_text("text")
    sink.write_text("longer than the text")
    Command(["cat"], tmp_path, stdin=source, stdout=sink).run()
    assert sink.read_text() == "text"


def test_keys_and_python_settings_stay_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("OTHER", "1")
    sink = tmp_path / "out"
    Command(["env"], tmp_path, stdout=sink, env={"GIVEN": "1"}).run()
    names = {line.partition("=")[0] for line in sink.read_text().splitlines()}
    assert names.isdisjoint({"ANTHROPIC_API_KEY", "PYTHONDONTWRITEBYTECODE"})
    assert names >= {"PATH", "OTHER", "GIVEN"}
    assert os.environ["ANTHROPIC_API_KEY"] == "secret"


def test_commands_of_a_side_add_up_and_what_goes_before_does_not(tmp_path: Path) -> None:
    own = own_peak_mib()
    before = python(f"bytearray({own + 300} * 2**20)", tmp_path)
    small, large = (python(f"bytearray({own + size} * 2**20)", tmp_path) for size in (48, 96))
    sample = Processes("two", [large, small], [before]).measure()
    assert (own + 96) * MIB < sample.peak_bytes < (own + 300) * MIB
    assert sample.wall_s > large.run().wall_s / 10


@pytest.mark.parametrize("place", ["before", "commands"])
def test_a_side_stops_at_the_first_command_that_fails(tmp_path: Path, place: str) -> None:
    fails = python("raise SystemExit(1)", tmp_path)
    leaves_a_mark = python("open('mark', 'w')", tmp_path)
    given: dict[str, list[Command]] = {"before": [], "commands": []}
    given[place] = [fails, leaves_a_mark]
    with pytest.raises(BenchError):
        Processes("side", **given).measure()
    assert not (tmp_path / "mark").exists()


def worker(place: Path, body: str) -> Worker:
    program = f"import sys\nfor line in sys.stdin:\n    {body}\n    sys.stdout.flush()\n"
    return Worker("work", [sys.executable, "-c", program], place)


def test_a_worker_answers_round_after_round(tmp_path: Path) -> None:
    answer = '{"wall_s": 0.5, "cpu_s": 0.25, "peak_bytes": 7, "synchronous": 2}'
    with worker(tmp_path, f"print('{answer}')") as side:
        assert [side.measure() for _ in range(3)] == [(0.5, 0.25, 7)] * 3
        assert side.facts == {"synchronous": 2}


def test_a_worker_that_ends_is_no_figure(tmp_path: Path) -> None:
    with (
        worker(tmp_path, "raise SystemExit(4)") as side,
        pytest.raises(BenchError, match="exit code 4"),
    ):
        side.measure()


def test_a_worker_is_used_inside_its_context_only(tmp_path: Path) -> None:
    with pytest.raises(BenchError, check=RaisedIn(Worker.measure)):
        worker(tmp_path, "pass").measure()


def test_the_floor_is_our_own_size() -> None:
    assert peak_floor_bytes() > MIB
