"""The parts of the campaign: what cuts a network and slows a disk does so, and figures add up."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaigns.hostile.fleet import hosts, slow_disk
from tests.campaigns.hostile.fleet.judging import Row
from tests.campaigns.hostile.fleet.keeping import Run, earlier, keep, summed
from tests.waiting import next_line

_TRY = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3])).close()
except OSError as error:
    print("no", flush=True)
else:
    print("yes", flush=True)
"""


def run(seed: int, **faults: int) -> Run:
    rows = {kind: Row(f"kill of {kind}", faults=count, fixes=1) for kind, count in faults.items()}
    return Run(seed=seed, began="2026-01-01T00:00", cores=2, load=(1.0, 4.0), rows=rows)


def test_runs_of_one_build_add_up(tmp_path: Path) -> None:
    data, page = tmp_path / "faults.json", tmp_path / "faults.md"
    keep(data, page, "one", run(1, server=2, worker=0))
    keep(data, page, "one", run(2, server=2, disk=1))
    keep(data, page, "one", run(1, server=3, worker=0))  # the first has gone on meanwhile
    kept = earlier(data, "one").runs
    assert [(row.name, row.faults, row.fixes) for row in summed(kept)] == [
        ("kill of server", 5, 2),
        ("kill of disk", 1, 1),
    ]
    assert "**6 faults, 3 fixes; nothing was lost" in page.read_text()
    assert "seeds 1, 2 of build `one`" in page.read_text()
    keep(data, page, "two", run(3, disk=7))
    assert "**7 faults, 1 fixes;" in page.read_text()
    assert "`one` 6 faults, 3 fixes, nothing wrong." in page.read_text()
    assert [one.seed for one in earlier(data, "two").runs] == [3]


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    wrong = run(1, server=3)
    wrong.rows["server"].lost = 1
    wrong.skipped["disk"] = "no disk"
    keep(tmp_path / "a.json", tmp_path / "a.md", "one", wrong)
    assert "**not all is as it must be**" in (tmp_path / "a.md").read_text()
    assert "Not had here: *disk*: no disk." in (tmp_path / "a.md").read_text()


def test_a_pulled_cable_passes_nothing() -> None:
    if reason := hosts.missing():
        pytest.skip(reason)
    with hosts.network("t") as one, hosts.network("p") as two, socket.socket() as listening:
        listening.bind((one.address, 0))
        listening.listen()
        port = listening.getsockname()[1]
        with hosts.host("a", 2, [one, two]) as machine:
            assert _reaches(machine, one.address, port, 60)
            machine.cables[0].pull()
            assert not _reaches(machine, one.address, port, 1)
            machine.cables[0].plug()
            assert _reaches(machine, one.address, port, 60)
            machine.cables[1].pull()
            assert _reaches(machine, one.address, port, 60)


def _reaches(machine: hosts.Host, address: str, port: int, patience_s: float) -> bool:
    words = (sys.executable, "-c", _TRY, address, str(port), str(patience_s))
    with subprocess.Popen((*machine.inside, *words), stdout=subprocess.PIPE, text=True) as trying:
        return next_line(trying) == "yes\n"


def test_a_slow_disk_has_its_limit_as_long_as_it_is_there(tmp_path: Path) -> None:
    if reason := slow_disk.missing():
        pytest.skip(reason)
    limits = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device")
    with slow_disk.slow_disk(tmp_path / "disk") as disk:
        disk.allow(500)
        assert f"{disk.device} 500\n" in limits.read_text()
        (disk.place / "file").write_text("kept")
        assert disk.place.is_mount()
    assert not disk.place.is_mount()
    assert disk.device not in limits.read_text()
