"""The registry that replays: what clients get from it, and what keeps tests from getting anything
else. Real npm and uv against answers that are written here, or against the recorded ones."""

import base64
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha512
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fallback_tier.sandbox.clients import SubprocessClients
from tests.fakes.repository import write
from tests.fakes.serving import listening
from tests.registry import Universe, serve
from tests.registry.recording import DEAD, Recording, at_registry, client_environ, serve_recorded
from tests.registry.store import (
    LISTED,
    Entry,
    Listed,
    Store,
    check_npm,
    check_pypi,
    cut_packument,
    cut_simple,
)
from tests.registry.upstream import Upstream

UNTIL = "2026-01-01T00:00:00Z"
LEFT = Universe().npm("left", "1.0.0").npm("@scope/left", "1.0.0").pypi("left", "1.0.0")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """A real registry's place is taken by a made-up one, with the HTML that every index has."""
    with serve(LEFT) as registry:
        yield Upstream(registry.npm_url.rstrip("/"), registry.pypi_url)


def clients(recording: Recording) -> SubprocessClients:
    environ = {**os.environ, **recording.environ}
    return SubprocessClients({name: value for name, value in environ.items() if value})


def install_both(recording: Recording, place: Path) -> None:
    """npm and uv install what the upstream has."""
    dependencies = {"left": "1.0.0", "@scope/left": "^1.0.0"}
    write(place, {"package.json": json.dumps({"name": "app", "dependencies": dependencies})})
    started = clients(recording)
    done = started.run("npm", ["install", "--ignore-scripts"], cwd=place, timeout_s=120)
    assert done.ok, done.output
    options = ["--no-deps", "--target", "python", "--python", sys.executable]
    done = started.run("uv", ["pip", "install", *options, "left"], cwd=place, timeout_s=120)
    assert done.ok, done.output
    lock = json.loads((place / "package-lock.json").read_text())["packages"]
    assert {entry["resolved"] for path, entry in lock.items() if path} == {
        f"{recording.url}/left/-/left-1.0.0.tgz",
        f"{recording.url}/@scope/left/-/left-1.0.0.tgz",
    }


def test_what_was_recorded_is_replayed_without_the_registry(
    store: Store, upstream: Upstream, tmp_path: Path
) -> None:
    listed = Listed("2030-01-01T00:00:00Z", frozenset())
    with serve_recorded(store, upstream, listed) as recorder:
        install_both(recorder, tmp_path / "a")
        asked = set(recorder.asked)
    pages = {Entry("npm", "left"), Entry("npm", "@scope/left"), Entry("pypi", "left")}
    assert asked == pages | {Entry(*entry[:2], "1.0.0") for entry in pages}
    assert store.entries() == asked
    with serve_recorded(store) as replay:
        install_both(replay, tmp_path / "b")
        assert replay.asked == asked
        assert replay.missing == []


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize(
    "path", ["/right", "/left/-/left-2.0.0.tgz", "/-/simple/right/", "/-/npm/v1/security/audits"]
)
def test_what_was_not_recorded_is_told_by_name(store: Store, path: str) -> None:
    with serve_recorded(store) as replay:
        status, words = get(replay.url + path)
        assert status == 404
        assert f"GET {path} is not recorded" in words
        assert replay.take_missing() == [f"GET {path}"]
        assert replay.take_missing() == []


def test_a_package_that_no_registry_has_is_an_answer(store: Store, upstream: Upstream) -> None:
    with serve_recorded(store, upstream) as recorder:
        assert get(f"{recorder.url}/right")[0] == 404
    with serve_recorded(store) as replay:
        assert get(f"{replay.url}/right") == (404, '{"error":"Not found"}')
        assert replay.missing == []


def test_a_run_fails_that_asks_for_what_was_not_recorded(tmp_path: Path) -> None:
    """In a session of its own, with our conftest and an empty store that says it is complete."""
    write(
        tmp_path,
        {
            "test_it.py": "import os, pytest, subprocess\n\n"
            '@pytest.mark.registry("npm")\n'
            "def test_quiet_about_it():\n"
            '    subprocess.run(["npm", "view", "left", "version"])\n',
            "run.py": "import sys, pytest\n"
            "from tests.registry import store\n"
            f"store.Store.__init__.__defaults__ = (__import__('pathlib').Path({str(tmp_path)!r}),)\n"
            "store.Store.problem = lambda self: None\n"
            "sys.exit(pytest.main(sys.argv[1:]))\n",
        },
    )
    root = LISTED.parents[2]
    command = [sys.executable, "run.py", "-c", str(root / "pyproject.toml"), "--rootdir", str(root)]
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-q", str(tmp_path / "test_it.py")]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    done = subprocess.run(
        [*command, *options], cwd=tmp_path, env=environ, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Asked of a registry, and not recorded: GET /left." in done.stdout


# --- the environment of the tests -----------------------------------------------------------------


def hosts(environ: dict[str, str]) -> set[str | None]:
    return {urlsplit(value).hostname for value in environ.values() if "://" in value}


def test_clients_are_told_of_loopback_only(tmp_path: Path) -> None:
    environ = client_environ("http://127.0.0.1:1", tmp_path)
    assert hosts(environ) == {"127.0.0.1"}
    assert {key: os.environ.get(key, "") for key in environ} == {
        key: value.replace("http://127.0.0.1:1/", f"{DEAD}/").replace(
            str(tmp_path), str(Path.home())
        )
        for key, value in environ.items()
    }


@pytest.mark.registry
def test_the_recorded_registry_is_the_only_one(tmp_path: Path) -> None:
    assert hosts(dict(os.environ)) == {"127.0.0.1"}
    url = os.environ["NPM_CONFIG_REGISTRY"]
    assert not url.startswith(DEAD)
    found = SubprocessClients().run("npm", ["view", "ms", "name"], cwd=tmp_path, timeout_s=120)
    assert found.ok, found.output
    # Somewhere else, there is no way out: the proxy doesn't exist.
    options = ["view", "ms", "name", "--registry=http://registry.test/", "--fetch-retries=0"]
    clients = SubprocessClients(allow_hosts=["registry.test"])
    done = clients.run("npm", options, cwd=tmp_path, timeout_s=120)
    assert not done.ok
    assert "ECONNREFUSED" in done.output
    write(tmp_path, {"one.in": "iniconfig\n"})
    options = ["pip", "compile", "one.in", "--default-index", "http://index.test/simple"]
    done = SubprocessClients().run("uv", options, cwd=tmp_path, timeout_s=120)
    assert not done.ok
    assert "Connection refused" in done.output


# --- what is stored -------------------------------------------------------------------------------

PACKUMENT = {
    "name": "left",
    "readme": "long",
    "dist-tags": {"latest": "2.0.0", "old": "1.0.0"},
    "time": {
        "created": UNTIL,
        "1.0.0": "2025-01-01T00:00:00.000Z",
        "1.1.0-rc": "2025-12-01T00:00:00.000Z",
        "2.0.0": "2026-06-01T00:00:00.000Z",
    },
    "versions": {
        version: {"version": version, "_npmUser": {}, "dist": {"shasum": "0", "fileCount": 1}}
        for version in ("1.0.0", "1.1.0-rc", "2.0.0")
    },
}


def test_releases_of_later_are_not_seen() -> None:
    cut = cut_packument(PACKUMENT, UNTIL, frozenset())
    assert cut["dist-tags"] == {"latest": "1.0.0", "old": "1.0.0"}
    assert cut["versions"]["1.0.0"] == {"version": "1.0.0", "dist": {"shasum": "0"}}
    assert set(cut["versions"]) == set(cut["time"]) == {"1.0.0", "1.1.0-rc"}
    assert "2.0.0" in cut_packument(PACKUMENT, UNTIL, frozenset({"2.0.0"}))["versions"]
    files = [
        {"filename": "left-1.0.tar.gz", "upload-time": "2025-01-01T00:00:00Z"},
        {"filename": "left-1.0.exe"},
        {"filename": "left-2.0-py3-none-any.whl", "upload-time": "2026-06-01T00:00:00Z"},
    ]
    page = {"name": "left", "files": files}
    shown = [file["filename"] for file in cut_simple(page, UNTIL, frozenset())["files"]]
    assert shown == ["left-1.0.tar.gz", "left-1.0.exe"]
    assert len(cut_simple(page, UNTIL, frozenset({"2.0"}))["files"]) == 3


def test_a_file_that_its_page_did_not_promise_is_not_stored(
    store: Store, upstream: Upstream
) -> None:
    with serve_recorded(store, upstream) as recorder:
        page = upstream.packument("left")
        page["versions"]["1.0.0"]["dist"]["integrity"] = "sha512-AAAA"
        store.add_page("npm", "left", page)
        status, words = get(f"{recorder.url}/left/-/left-1.0.0.tgz")
    assert status == 502
    assert "not what its page promised" in words
    assert store.entries() == {Entry("npm", "left")}


def test_a_page_in_html_says_the_same_as_in_json(tmp_path: Path) -> None:
    """Not every index has JSON: the links are read, and what they say of their files."""
    page = """<!DOCTYPE html><html><body><a>no link</a>
    <a href="/files/left-1.0.tar.gz#sha256=aa" data-requires-python="&gt;=3.9"
       data-yanked="" data-upload-time="2025-01-01T00:00:00Z">left-1.0.tar.gz</a>
    <a href="https://files.test/left%2B-1.0-py3-none-any.whl">left</a></body></html>"""
    place = tmp_path / "simple" / "left"
    place.mkdir(parents=True)
    (place / "index.html").write_text(page)
    with folder_server(tmp_path) as url:
        found = Upstream("", f"{url}/simple").simple("left")
    assert found == {
        "name": "left",
        "files": [
            {
                "filename": "left-1.0.tar.gz",
                "url": f"{url}/files/left-1.0.tar.gz",
                "hashes": {"sha256": "aa"},
                "requires-python": ">=3.9",
                "yanked": True,
                "upload-time": "2025-01-01T00:00:00Z",
            },
            {
                "filename": "left+-1.0-py3-none-any.whl",
                "url": "https://files.test/left%2B-1.0-py3-none-any.whl",
                "hashes": {},
            },
        ],
    }


@contextmanager
def folder_server(folder: Path) -> Iterator[str]:
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with listening(handler) as address:
        yield address


def test_hashes() -> None:
    right = "sha512-" + base64.b64encode(sha512(b"body").digest()).decode()
    assert check_npm(b"body", {"integrity": right})
    assert not check_npm(b"bodY", {"integrity": right})
    assert not check_npm(b"body", {"shasum": "0"})
    assert check_pypi(b"body", {})
    assert not check_pypi(b"body", {"sha256": "0"})


def test_only_a_whole_store_replays(store: Store, tmp_path: Path) -> None:
    listed = tmp_path / "listed.txt"
    one = Listed(UNTIL, frozenset({Entry("npm", "left"), Entry("pypi", "left", "1.0.0")}))
    one.write(listed)
    assert Listed.read(listed) == one
    assert "not recorded here" in (store.problem(listed) or "")
    store.open(UNTIL)
    store.stamp.write_text(listed.read_text())
    assert store.problem(listed) is None
    Listed(UNTIL, one.entries | {Entry("npm", "right")}).write(listed)
    assert store.problem(listed) is not None


def test_pages_of_another_moment_are_forgotten_and_files_are_kept(store: Store) -> None:
    store.open(UNTIL)
    store.add_page("npm", "@scope/left", {})
    store.add_file("npm", "@scope/left", "left-1.0.0.tgz", b"")
    store.open(UNTIL)
    assert store.lacking([Entry("npm", "@scope/left")]) == []
    store.open("2027-01-01T00:00:00Z")
    assert store.entries() == {Entry("npm", "@scope/left", "1.0.0")}


def test_a_locks_urls_are_those_of_the_registry() -> None:
    npm = '"resolved": "https://registry.test/@scope/left/-/left-1.0.0.tgz#aa", "https://a.test/b"'
    assert at_registry(npm, "http://127.0.0.1:1/") == (
        '"resolved": "http://127.0.0.1:1/@scope/left/-/left-1.0.0.tgz#aa", "https://a.test/b"'
    )
    uv = (
        'source = { registry = "https://index.test/simple" }\n'
        'sdist = { url = "https://files.test/packages/aa/left_x-1.0.tar.gz", hash = "" }\n'
        '    { url = "https://files.test/packages/bb/left_x-1.0-py3-none-any.whl" },\n'
    )
    assert at_registry(uv, "http://127.0.0.1:1/") == (
        'source = { registry = "http://127.0.0.1:1/-/simple" }\n'
        'sdist = { url = "http://127.0.0.1:1/-/files/left-x/left_x-1.0.tar.gz", hash = "" }\n'
        '    { url = "http://127.0.0.1:1/-/files/left-x/left_x-1.0-py3-none-any.whl" },\n'
    )
