"""Fills the store that tests replay from: the one step of the set-up that asks a registry.

``python -m tests.registry.fetch`` has npm and uv ask for what ``recorded.txt`` lists, through a
recorder on loopback. ``--record`` runs the ``registry`` tests through it instead, and writes the
list from what they asked. Where no registry can be reached both say so; the tests are then skipped.
"""

import argparse
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from tests.registry.recording import Recording, serve_recorded
from tests.registry.store import LISTED, NPM, PYPI, Entry, Listed, Store
from tests.registry.upstream import UnreachableError, Upstream

#: A process of npm or uv costs half a second, most of it waiting.
_WORKERS = 4
#: npm asks for all of a command's packages at once.
_NPM_BATCH = 25
_TIMEOUT_S = 300.0
#: pytest's exit codes: a test that failed asked for what it needs all the same.
_RAN = frozenset({0, 1})

#: Where tests find the recorder, instead of starting a registry that replays.
RECORDER = "TEST_REGISTRY"

_UV = str(Path(sys.executable).with_name("uv"))
_T = TypeVar("_T")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.registry.fetch", description=__doc__)
    parser.add_argument("--record", action="store_true", help="run the tests, write the list")
    options, rest = parser.parse_known_args(arguments)
    store = Store()
    if not options.record and store.problem() is None:
        return 0
    try:
        upstream = Upstream.discover()
    except UnreachableError as error:
        print(f"The registries are not recorded, and their tests will be skipped: {error}")
        return 0
    return _record(store, upstream, rest) if options.record else _fetch(store, upstream)


def _record(store: Store, upstream: Upstream, arguments: Sequence[str]) -> int:
    # Some of the tests (arguments of pytest's) don't tell what the others need: they add to the list.
    former = Listed.read() if arguments and LISTED.exists() else None
    until = former.until if former else datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    store.open(until)
    with serve_recorded(store, upstream, Listed(until, frozenset())) as recorder:
        command = [sys.executable, "-m", "pytest", "-m", "registry", "-n", "2", *arguments]
        env = os.environ | {RECORDER: recorder.url}
        code = subprocess.run(command, env=env).returncode
        for path in recorder.missing:
            print(f"asked, and can't be recorded: {path}")
    if code in _RAN and not recorder.missing:
        here = store.entries()
        asked = {entry for entry in recorder.asked if entry in here}
        Listed(until, frozenset(asked | (former.entries if former else set()))).write()
        _stamp(store)
    return code or len(recorder.missing)


def _fetch(store: Store, upstream: Upstream) -> int:
    listed, start = Listed.read(), time.monotonic()
    store.open(listed.until)
    with serve_recorded(store, upstream, listed) as recorder:
        for step in (_npm_files, _npm_pages, _wheels, _simple_pages, _foreign_wheels):
            lacking = store.lacking(listed.entries)
            print(f"recording registry answers: {len(lacking)} of {len(listed.entries)} to go")
            step(lacking, recorder)
    lacking = store.lacking(listed.entries)
    for entry in lacking:
        print(f"could not be recorded: {entry}")
    if not lacking:
        _stamp(store)
        size = sum(path.stat().st_size for path in store.root.rglob("*") if path.is_file())
        print(f"recorded in {time.monotonic() - start:.0f} s: {size / 1e6:.0f} MB in {store.root}")
    return int(bool(lacking))


def _stamp(store: Store) -> None:
    store.stamp.write_bytes(LISTED.read_bytes())


# --- the clients, asking for what is listed -------------------------------------------------------


def _npm_files(lacking: Iterable[Entry], recorder: Recording) -> None:
    """Tarballs, and with them their packages' pages."""
    specs = [f"{entry.name}@{entry.version}" for entry in lacking if _is(entry, NPM, file=True)]
    batches = [specs[at : at + _NPM_BATCH] for at in range(0, len(specs), _NPM_BATCH)]
    _all(lambda batch: _run(recorder, "npm", "cache", "add", *batch), batches)


def _npm_pages(lacking: Iterable[Entry], recorder: Recording) -> None:
    names = [entry.name for entry in lacking if _is(entry, NPM, file=False)]
    _all(lambda name: _run(recorder, "npm", "view", name, "name"), names)


def _wheels(lacking: Iterable[Entry], recorder: Recording) -> None:
    """One process a round: each takes one release of every package (uv installs no two at once)."""
    releases = defaultdict(list)
    for entry in lacking:
        if _is(entry, PYPI, file=True):
            releases[entry.name].append(f"{entry.name}=={entry.version}")
    rounds: dict[int, list[str]] = defaultdict(list)
    for specs in releases.values():
        for number, spec in enumerate(specs):
            rounds[number].append(spec)

    def ask(number: int) -> None:
        specs = rounds[number]
        if not _install(recorder, f"round-{number}", specs):
            for spec in specs:  # one that can't be had hides the others
                _install(recorder, spec, [spec])

    _all(ask, rounds)


def _install(recorder: Recording, folder: str, specs: Sequence[str]) -> bool:
    options = ["--no-deps", "--no-build", "--target", str(recorder.scratch / folder)]
    return _run(recorder, _UV, "pip", "install", "--python", sys.executable, *options, *specs)


def _simple_pages(lacking: Iterable[Entry], recorder: Recording) -> None:
    def ask(name: str) -> bool:
        file = recorder.scratch / f"{name}.in"
        file.write_text(f"{name}\n")
        return _run(recorder, _UV, "pip", "compile", "--quiet", "--no-deps", str(file))

    _all(ask, [entry.name for entry in lacking if _is(entry, PYPI, file=False)])


def _foreign_wheels(lacking: Iterable[Entry], recorder: Recording) -> None:
    """Of a release that has no wheel for this machine, the first one: for its metadata."""
    for entry in lacking:
        if _is(entry, PYPI, file=True):
            for file in recorder.files_of(entry)[:1]:
                recorder.answer("GET", f"/-/files/{entry.name}/{file}")


def _is(entry: Entry, kind: str, *, file: bool) -> bool:
    return entry.kind == kind and bool(entry.version) is file


def _all(ask: Callable[[_T], object], things: Iterable[_T]) -> None:
    with ThreadPoolExecutor(_WORKERS) as pool:
        list(pool.map(ask, things))


def _run(recorder: Recording, *command: str) -> bool:
    """Failures are told by what is still lacking in the end."""
    environ = {**os.environ, **recorder.environ}
    done = subprocess.run(
        command,
        cwd=recorder.scratch,
        env={name: value for name, value in environ.items() if value},
        capture_output=True,
        timeout=_TIMEOUT_S,
    )
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
