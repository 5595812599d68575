"""What is installed is made once for all who need it; never half, never just believed, never too much."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from fallback_plugins.shared import store as store_module
from fallback_plugins.shared.installation import RECORD, Installed, Level
from fallback_plugins.shared.resolution import (
    InstallCommand,
    Resolution,
    ResolvedBy,
    ResolvedPackage,
)
from fallback_plugins.shared.store import InstalledStore, Wanted, described, entries_of
from fallback_tier.errors import ToolFailedError
from fallback_tier.files import entries, folders
from tests.kinds import OfKind
from tests.waiting import next_line

IN_PART = Installed(Level.IN_PART, (("x==1", "no wheel"),))


class Making:
    """Writes a package, and counts how often."""

    def __init__(self, text: str = "one\n") -> None:
        self.text = text
        self.times = 0

    def __call__(self, folder: Path) -> Installed:
        self.times += 1
        (folder / "lib").mkdir()
        (folder / "lib" / "a.py").write_text(self.text)
        (folder / "lib" / "link.py").symlink_to("a.py")
        return IN_PART


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def make() -> Making:
    return Making()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "installed"


@pytest.fixture
def store(place: Path, told: list[str]) -> InstalledStore:
    return InstalledStore(place, told.append)


def names(place: Path) -> set[str]:
    """Entries, and what is beside them; locks are no news."""
    return {path.name for path in place.iterdir() if path.suffix not in {".lock", ".use"}}


def test_an_entry_is_made_once_with_what_could_not_be_had(
    store: InstalledStore, place: Path, make: Making, told: list[str]
) -> None:
    entry = store.entry("kind-a", make)
    assert (entry / "lib" / "a.py").read_text() == "one\n"
    assert Installed.kept(entry) == IN_PART
    assert InstalledStore(place).entry("kind-a", make) == entry == store.find("kind-a")
    assert (make.times, told, names(place)) == (1, [], {"kind-a"})
    assert store.entry("kind-b", make) != entry
    assert make.times == 2


def test_a_name_that_is_no_text_is_kept_as_it_is(store: InstalledStore) -> None:
    """JSON can write half of a surrogate pair, and a package.json may: as a name that is left out."""
    found = Installed(
        Level.IN_PART, (("other devDependencies", "left out: \ud83d"),), step="npm ci"
    )
    entry = store.entry("kind-a", lambda _: found)
    assert Installed.kept(entry) == found


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"declined": [1], "level": "everything"}',
        b'{"declined": [], "level": "no such"}',
        b'{"declined": [], "level": "in part", "how": 1}',
    ],
    ids=["empty", "bytes", "list", "bare", "deep", "number", "level", "how"],
)
def test_a_record_that_can_not_be_read_is_told_with_its_file(
    store: InstalledStore, place: Path, make: Making, text: bytes
) -> None:
    entry = store.entry("kind-a", make)
    (entry / RECORD).write_bytes(text)
    with pytest.raises(ToolFailedError, check=OfKind("bad_record"), match=RECORD):
        Installed.kept(entry)
    (found,) = entries_of(place).all()
    assert described(found) == ("kind", "nothing that can be read")


def test_what_was_not_made_is_not_found(store: InstalledStore, place: Path) -> None:
    assert store.find("kind-a") is None
    assert not place.exists()


def test_of_a_making_that_fails_nothing_is_kept(store: InstalledStore, place: Path) -> None:
    failed = ToolFailedError("no registry", next_step="")

    def fail(folder: Path) -> Installed:
        (folder / "half").write_text("")
        raise failed

    with pytest.raises(ToolFailedError) as caught:
        store.entry("kind-a", fail)
    assert caught.value is failed
    assert names(place) == set()


def test_those_who_come_at_once_make_one_and_say_that_they_wait(place: Path) -> None:
    make, reported = Making(), []  # type: ignore[var-annotated]

    def slowly(folder: Path) -> Installed:
        time.sleep(0.5)
        return make(folder)

    with ThreadPoolExecutor(8) as pool:
        stores = [InstalledStore(place, reported.append) for _ in range(8)]
        found = list(pool.map(lambda store: store.entry("kind-a", slowly), stores))
    assert (make.times, len(set(found))) == (1, 1)
    assert len(reported) == 7, "everybody but the one who makes it"
    assert "another run is busy with what is to be installed" in reported[0]


HURTS: dict[str, Callable[[Path], object]] = {
    "content": lambda lib: (lib / "a.py").write_text("two\n"),
    "longer": lambda lib: (lib / "a.py").write_text("one\ntwo\n"),
    "gone": lambda lib: (lib / "a.py").unlink(),
    "planted": lambda lib: (lib / "b.py").write_text(""),
    "planted folder": lambda lib: (lib / "c").mkdir(),
    "mode": lambda lib: (lib / "a.py").chmod(0o777),
    "link": lambda lib: ((lib / "link.py").unlink(), (lib / "link.py").symlink_to("/etc/passwd")),
    "replaced": lambda lib: ((lib / "link.py").unlink(), (lib / "link.py").write_text("one\n")),
    "all of it": lambda lib: folders.remove_tree(lib.parent),
    "mark": lambda lib: (lib.parents[1] / "whole").write_text("{"),
    "another's mark": lambda lib: (lib.parents[1] / "whole").write_text('{"boot": ""}'),
}


@pytest.mark.parametrize("kind", HURTS)
def test_a_changed_entry_is_made_again_and_that_is_said(
    store: InstalledStore, place: Path, make: Making, told: list[str], kind: str
) -> None:
    entry = store.entry("kind-a", make)
    HURTS[kind](entry / "lib")
    assert store.find("kind-a") is None
    assert store.entry("kind-a", make) == entry
    assert (entry / "lib" / "a.py").read_text() == "one\n"
    assert sorted(path.name for path in (entry / "lib").iterdir()) == ["a.py", "link.py"]
    assert make.times == 2
    assert "was changed since, and is made again" in told[0]


def test_bytes_that_are_changed_behind_their_times_are_seen_at_the_next_boot(
    store: InstalledStore, make: Making, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = store.entry("kind-a", make) / "lib" / "a.py"
    before = file.stat()
    file.write_text("two\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    store.entry("kind-a", make)
    assert make.times == 1, "all of it is not read each time"
    (tmp_path / "boot").write_text("another\n")
    monkeypatch.setattr(folders, "_BOOT_ID", tmp_path / "boot")
    store.entry("kind-a", make)
    assert (make.times, file.read_text()) == (2, "one\n")


def test_what_only_looks_changed_is_read_and_kept(store: InstalledStore, make: Making) -> None:
    file = store.entry("kind-a", make) / "lib" / "a.py"
    os.utime(file, (1, 1))
    store.entry("kind-a", make)
    assert make.times == 1
    file.with_name("elsewhere").hardlink_to(file)  # as a client's cache does it
    file.with_name("elsewhere").unlink()
    store.entry("kind-a", make)
    assert make.times == 1


KILLED = """
import os, sys, time
from pathlib import Path
from fallback_plugins.shared.store import InstalledStore

def make(folder):
    (folder / "half").write_text("")
    print("making", flush=True)
    time.sleep(60)

InstalledStore(Path(sys.argv[1])).entry("kind-a", make)
"""


def test_a_killed_run_leaves_no_half(store: InstalledStore, place: Path, make: Making) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(place)], stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    with run, run.stdout:
        assert next_line(run) == "making\n"
        assert len(names(place)) == 1, "what it makes has no entry's name"
        store.entry("kind-b", make)
        assert len(names(place)) == 2, "what a live run makes is left alone"
        run.send_signal(signal.SIGKILL)
    assert store.find("kind-a") is None
    entry = store.entry("kind-a", make)
    assert not (entry / "half").exists()
    assert names(place) == {"kind-a", "kind-b"}


def bounded(store: InstalledStore, monkeypatch: pytest.MonkeyPatch, **bounds: Any) -> None:
    monkeypatch.setattr(store, "_entries", replace(store._entries, **bounds))


def aged(place: Path, key: str, age: int) -> None:
    when = time.time() - age
    os.utime(place / key / "whole", (when, when))


def test_the_last_used_are_kept_and_one_in_use_is_never_removed(
    place: Path, make: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = InstalledStore(place)
    user.entry("kind-used", make)
    for number in range(3):
        InstalledStore(place).entry(f"kind-{number}", make)
        aged(place, f"kind-{number}", 100 - number)
    aged(place, "kind-used", 1000)
    last = InstalledStore(place)
    bounded(last, monkeypatch, most=2)
    last.entry("kind-last", make)
    assert names(place) == {"kind-used", "kind-last", "kind-2"}, "in use, although it is the oldest"
    del user
    last.entry("kind-last", make)
    assert names(place) == {"kind-last", "kind-2"}
    assert len(list(place.glob("*.lock"))) == 2


def test_its_bytes_are_bounded(
    store: InstalledStore, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        InstalledStore(place).entry(f"kind-{number}", Making("x" * 1000))
        aged(place, f"kind-{number}", 100 - number)
    bounded(store, monkeypatch, most_bytes=3000)
    store.entry("kind-3", Making("x" * 1000))
    assert names(place) == {"kind-3", "kind-2"}


def test_who_uses_a_changed_entry_keeps_its_files_until_it_ends(place: Path, make: Making) -> None:
    user = InstalledStore(place)
    entry = user.entry("kind-a", make)
    opened = os.open(entry, os.O_RDONLY)
    (entry / "lib" / "a.py").write_text("two\n")
    InstalledStore(place).entry("kind-a", make)
    with os.scandir(opened) as found:
        assert any(found), "mounted where it was, it is all there"
    os.close(opened)
    assert len(names(place)) == 2
    del user
    InstalledStore(place).entry("kind-b", make)
    assert names(place) == {"kind-a", "kind-b"}


def wanted(fresh: str, of_fix: dict[str, str], base: Wanted | None = None) -> Wanted:
    return Wanted("kind", "what" if base is None else "patched", "by", of_fix, fresh, base)


def resolved(version: str, by: ResolvedBy = ResolvedBy.CLIENT) -> Resolution:
    return Resolution(
        ecosystem="npm",
        command=InstallCommand(client="npm", files=("package.json",), label="npm install"),
        by=by,
        packages=(ResolvedPackage(key="a", name="a", version=version),),
    )


def test_what_is_resolved_once_serves_a_fix_and_the_next_one_resolves_anew(place: Path) -> None:
    """On the same day the next one takes it too, and on another day if a lock decides."""
    released, made = ["1"], list[str]()

    def install(day: str, of_fix: dict[str, str], by: ResolvedBy = ResolvedBy.CLIENT) -> str:
        def make(folder: Path, recorded: Resolution | None) -> tuple[Installed, Resolution]:
            version = recorded.packages[0].version if recorded else released[-1]
            (folder / "version").write_text(version)
            made.append(version)
            return IN_PART, resolved(version, by)

        return (InstalledStore(place).installed(wanted(day, of_fix), make) / "version").read_text()

    first: dict[str, str] = {}
    assert install("day 1", first) == "1"
    released.append("2")
    assert [install("day 1", {}), install("day 2", first), install("day 2", {})] == ["1", "1", "2"]
    assert made == ["1", "2"]
    rmtree(place)
    assert [install("day 3", first), install("day 3", {}, ResolvedBy.LOCK)] == ["1", "2"]
    released.append("3")
    assert install("day 4", {}) == "2"
    assert len({path.name for path in place.iterdir() if path.is_dir()}) == 2


def test_a_patched_tree_is_made_anew_beside_another_base(place: Path) -> None:
    """Though it is of the same day: what was kept of the base may be other packages."""
    store = InstalledStore(place)

    def install(base: str, patched: str, of_fix: dict[str, str]) -> str:
        under = wanted(base, of_fix)
        store.installed(under, lambda _, __: (IN_PART, resolved(base)))
        over = wanted("day", of_fix, under)
        store.installed(over, lambda _, __: (IN_PART, resolved(patched)))
        return store.resolved(over).packages[0].version

    assert [install("1", "2", {}), install("1", "3", {}), install("4", "5", {})] == ["2", "2", "5"]


def test_what_another_fix_resolved_is_not_taken_if_this_ones_recipe_resolved_other_releases(
    place: Path,
) -> None:
    store = InstalledStore(place)

    def install(version: str, *admitted: str) -> str:
        this = replace(
            wanted("day", {}), admits=lambda found: found.packages[0].version in admitted
        )
        store.installed(this, lambda _, __: (IN_PART, resolved(version)))
        return store.resolved(this).packages[0].version

    ends = [install("1"), install("2", "1"), install("3", "2"), install("4", "3")]
    assert ends == ["1", "1", "3", "3"]


def test_kept_resolutions_are_bounded_and_a_running_fix_keeps_its_own(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "MAX_RESOLUTIONS", 3)
    store, released, of_fix = InstalledStore(place), iter("123456789"), dict[str, str]()

    def install(what: str, of_fix: dict[str, str]) -> str:
        def make(_: Path, recorded: Resolution | None) -> tuple[Installed, Resolution]:
            return IN_PART, recorded or resolved(next(released))

        asked = replace(wanted("day", of_fix), what=what)
        store.installed(asked, make)
        return store.resolved(asked).packages[0].version

    assert install("running", of_fix) == "1"
    assert [install(str(number), {}) for number in range(6)] == list("234567")
    assert len([*(place.parent / "resolutions").iterdir()]) == 3
    assert install("running", of_fix) == "1"


def test_nobody_waits_for_ever(place: Path, make: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "MAX_WAIT_S", 0.2)
    held = InstalledStore(place)._entries.turn("kind-a")
    with held, pytest.raises(ToolFailedError, check=OfKind("locked")):
        InstalledStore(place).entry("kind-a", make)
