"""Which hosts real clients ask: no request reaches one that only the repository names (ADR-0096).

A stranger's server records every request, and a ``.netrc`` has credentials for it.
"""

import base64
import hashlib
import io
import itertools
import json
import os
import shutil
import socket
import tarfile
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fallback_plugins.npm import build_ecosystem as build_npm
from fallback_plugins.npm.clients.pnpm import PNPM
from fallback_plugins.npm.clients.yarn import YARN
from fallback_plugins.npm.installing.installation import BERRY, Installation
from fallback_plugins.pypi import build_ecosystem as build_pypi
from fallback_plugins.pypi.installing.environment import Environment
from fallback_plugins.shared.installation import Installed, Level
from fallback_tier.errors import RecipeError, ToolFailedError
from fallback_tier.execution import allowing
from fallback_tier.outcome import Selected
from fallback_tier.repo import Settings
from fallback_tier.sandbox.clients import SubprocessClients
from tests.choice import a_choice
from tests.e2e.command import Ended, osv, run
from tests.e2e.command import repository as command_repository
from tests.fakes.serving import serving
from tests.integration.gate_setup import advisory, needs_sandbox, patched
from tests.registry import Registry, Universe, serve
from tests.unit.shared.real_clients import provisioned
from tests.unit.shared.recipes import repository

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.registry("npm", "uv"),
    pytest.mark.xdist_group("hosts"),
]


def _archive() -> bytes:
    """A package that any client takes."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        text = json.dumps({"name": "strange", "version": "1.0.0"}).encode()
        member = tarfile.TarInfo("package/package.json")
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text))
    return made.getvalue()


ARCHIVE = _archive()
INTEGRITY = "sha512-" + base64.b64encode(hashlib.sha512(ARCHIVE).digest()).decode()


@dataclass
class Stranger:
    """A server that answers each request with an archive, and keeps it. ``leads_to``: its redirects."""

    url: str
    hits: list[tuple[str, str, str]] = field(default_factory=list)
    leads_to: str = ""

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")


@contextmanager
def stranger(leads_to: str = "") -> Iterator[Stranger]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.hits.append((self.command, self.path, self.headers.get("Authorization", "")))
            self.send_response(302 if leads_to else 200)
            if leads_to:
                self.send_header("Location", leads_to + self.path)
            self.send_header("Content-Length", str(0 if leads_to else len(ARCHIVE)))
            self.end_headers()
            if self.command != "HEAD" and not leads_to:
                self.wfile.write(ARCHIVE)

        do_HEAD = do_CONNECT = do_POST = do_GET  # noqa: N815 (the base's names)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Stranger(f"http://127.0.0.1:{server.server_port}", leads_to=leads_to)
    with serving(server):
        yield found


@dataclass
class World:
    """A user's registry, a stranger, and the user's clients."""

    registry: Registry
    stranger: Stranger
    clients: SubprocessClients
    place: Path

    def untouched(self) -> None:
        """No request of any kind reached the stranger."""
        assert self.stranger.hits == []


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    provisioned(folder / "fallback-tier" / "clients", YARN, *PNPM.values(), *BERRY.values())
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / ".netrc").write_text("machine 127.0.0.1 login me password secret-of-the-user\n")
    (folder / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("NETRC", str(folder / ".netrc"))
    return folder


@contextmanager
def opened(
    universe: Universe, place: Path, cache: Path, home: Path, **more: str
) -> Iterator[World]:
    with serve(universe) as registry, stranger() as other:
        environ = {**os.environ, **registry.environ, "XDG_CACHE_HOME": str(cache)}
        environ |= {"HOME": str(home), "NETRC": str(home / ".netrc"), **more}
        clients = SubprocessClients({k: v for k, v in environ.items() if v})
        yield World(registry, other, clients, place)


@pytest.fixture
def npm(
    tmp_path: Path, cache: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    needs_sandbox()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    universe = Universe()
    for version in ("1.0.0", "1.2.0", "2.0.0"):
        universe.npm("left", version)
    with opened(universe, tmp_path, cache, home) as world:
        universe.npm("names", "1.0.0", {"strange": f"{world.stranger.url}/strange-1.0.0.tgz"})
        universe.npm("clean", "1.0.0", {"left": "^1.0.0"})
        yield world


LEFT = advisory("left", "npm")


def manifest(**facts: object) -> str:
    return json.dumps({"name": "app", "version": "1.0.0", "private": True, **facts})


def npm_lock(version: int, packages: Mapping[str, Mapping[str, object]], root: object) -> str:
    head: dict[str, object] = {"name": "app", "version": "1.0.0", "lockfileVersion": version}
    if version > 1:
        entries = {f"node_modules/{name}": facts for name, facts in packages.items()}
        return json.dumps(
            {**head, "packages": {"": {"name": "app", "dependencies": root}, **entries}}
        )
    return json.dumps({**head, "requires": True, "dependencies": packages})


def by_lock(version: int) -> Callable[[World], dict[str, str]]:
    """left is of the registry; strange, by the lock alone, of the stranger."""

    def files(world: World) -> dict[str, str]:
        asked = {"left": "^1.0.0", "strange": "^1.0.0"}
        packages = {
            "left": {"version": "1.0.0"},
            "strange": {
                "version": "1.0.0",
                "resolved": f"{world.stranger.url}/strange/-/strange-1.0.0.tgz",
                "integrity": INTEGRITY,
            },
        }
        return {
            "package.json": manifest(dependencies=asked),
            "package-lock.json": npm_lock(version, packages, asked),
        }

    return files


def by_manifest(spec: str, section: str = "dependencies") -> Callable[[World], dict[str, str]]:
    def files(world: World) -> dict[str, str]:
        url = spec.replace("{url}", world.stranger.url).replace("{host}", world.stranger.host)
        return {
            "package.json": manifest(
                **{"dependencies": {"left": "1.0.0"}, section: {"strange": url, "left": "1.0.0"}}
            )
        }

    return files


def by_package(world: World) -> dict[str, str]:
    return {"package.json": manifest(dependencies={"left": "1.0.0", "names": "1.0.0"})}


def yarn_classic(asked: Mapping[str, str], *, url: str) -> Callable[[World], dict[str, str]]:
    def files(world: World) -> dict[str, str]:
        given = {name: spec.replace("{url}", world.stranger.url) for name, spec in asked.items()}
        blocks = ["# yarn lockfile v1\n\n"]
        for name, spec in sorted(given.items()):
            at = (
                url.replace("{url}", world.stranger.url)
                if name == "strange"
                else f"{world.registry.npm_url}{name}/-/{name}-1.0.0.tgz"
            )
            pattern = f"{name}@{spec}"
            blocks.append(f'"{pattern}":\n  version "1.0.0"\n  resolved "{at}"\n\n')
        return {"package.json": manifest(dependencies=given), "yarn.lock": "\n".join(blocks)}

    return files


def yarn_transitive(world: World) -> dict[str, str]:
    at = f"{world.registry.npm_url}left/-/left-1.0.0.tgz"
    text = f'# yarn lockfile v1\n\n\nleft@1.0.0:\n  version "1.0.0"\n  resolved "{at}"\n'
    return {
        "package.json": manifest(dependencies={"left": "1.0.0", "names": "1.0.0"}),
        "yarn.lock": text,
    }


def berry(world: World) -> dict[str, str]:
    url = f"{world.stranger.url}/strange-1.0.0.tgz"
    lock = (
        "__metadata:\n  version: 8\n  cacheKey: 10c0\n\n"
        '"app@workspace:.":\n  version: 0.0.0-use.local\n  resolution: "app@workspace:."\n'
        f'  dependencies:\n    left: "npm:1.0.0"\n    strange: "{url}"\n'
        "  languageName: unknown\n  linkType: soft\n\n"
        '"left@npm:1.0.0":\n  version: 1.0.0\n  resolution: "left@npm:1.0.0"\n'
        "  languageName: node\n  linkType: hard\n\n"
        f'"strange@{url}":\n  version: 1.0.0\n  resolution: "strange@{url}"\n'
        "  languageName: node\n  linkType: hard\n"
    )
    return {
        "package.json": manifest(dependencies={"left": "1.0.0", "strange": url}),
        "yarn.lock": lock,
    }


def pnpm(form: str, *, integrity: bool = True) -> Callable[[World], dict[str, str]]:
    def files(world: World) -> dict[str, str]:
        url = f"{world.stranger.url}/strange-1.0.0.tgz"
        resolution = (
            f"{{integrity: {INTEGRITY}, tarball: {url}}}" if integrity else f"{{tarball: {url}}}"
        )
        asked = {"left": "1.0.0", "strange": "1.0.0"}
        lock = (
            f"lockfileVersion: '{form}'\n\nsettings:\n  autoInstallPeers: true\n"
            "  excludeLinksFromLockfile: false\n\nimporters:\n\n  .:\n    dependencies:\n"
            "      left:\n        specifier: 1.0.0\n        version: 1.0.0\n"
            "      strange:\n        specifier: 1.0.0\n        version: 1.0.0\n\n"
            "packages:\n\n  left@1.0.0:\n    resolution: {integrity: sha512-AAAA}\n\n"
            f"  strange@1.0.0:\n    resolution: {resolution}\n\n"
            "snapshots:\n\n  left@1.0.0: {}\n\n  strange@1.0.0: {}\n"
        )
        return {"package.json": manifest(dependencies=asked), "pnpm-lock.yaml": lock}

    return files


def pnpm_transitive(world: World) -> dict[str, str]:
    lock = (
        "lockfileVersion: '9.0'\n\nimporters:\n\n  .:\n    dependencies:\n"
        "      left:\n        specifier: 1.0.0\n        version: 1.0.0\n\n"
        "packages:\n\n  left@1.0.0:\n    resolution: {integrity: sha512-AAAA}\n\n"
        "snapshots:\n\n  left@1.0.0: {}\n"
    )
    return {
        "package.json": manifest(dependencies={"left": "1.0.0", "names": "1.0.0"}),
        "pnpm-lock.yaml": lock,
    }


def npmrc(world: World) -> dict[str, str]:
    return {
        "package.json": manifest(dependencies={"left": "1.0.0"}),
        ".npmrc": f"registry={world.stranger.url}/\n//{world.stranger.host}/:_authToken=x\n",
        ".yarnrc": f'registry "{world.stranger.url}/"\n',
        ".yarnrc.yml": f"npmRegistryServer: {world.stranger.url}\n",
    }


URL = "{url}/strange-1.0.0.tgz"
NPM = {
    "v1 lock": by_lock(1),
    "v2 lock": by_lock(2),
    "v3 lock": by_lock(3),
    "manifest": by_manifest(URL),
    "optional": by_manifest(URL, "optionalDependencies"),
    "dev": by_manifest(URL, "devDependencies"),
    "override": by_manifest(URL, "overrides"),
    "odd slashes": by_manifest("http:{host}/strange-1.0.0.tgz"),
    "upper case": by_manifest("HTTP://{host}/strange-1.0.0.tgz"),
    "git": by_manifest("git+{url}/strange.git"),
    "credentials": by_manifest("http://u:p@{host}/strange-1.0.0.tgz"),
    "a package names it": by_package,
    "yarn resolved": yarn_classic({"left": "1.0.0", "strange": "1.0.0"}, url="{url}/x?strange-1.0.0"),
    "yarn address": yarn_classic({"left": "1.0.0", "strange": URL}, url=URL),
    "yarn transitive": yarn_transitive,
    "berry": berry,
    "pnpm": pnpm("9.0"),
    "pnpm without integrity": pnpm("9.0", integrity=False),
    "pnpm transitive": pnpm_transitive,
    "settings": npmrc,
}  # fmt: skip


def planned(world: World, files: Mapping[str, str], **settings: object) -> str:
    """What a plan says where it has no fix; empty: it has one."""
    repo = repository(world.place / "plan", files)
    repo = repo.model_copy(update={"settings": Settings(**settings)})  # type: ignore[arg-type]
    plugin = build_npm(world.clients)
    record = advisory("left", "npm")
    selection = plugin.select(record, repo)
    if not isinstance(selection, Selected):
        return selection.sentence
    try:
        plugin.apply(selection, record, repo)
    except (RecipeError, ToolFailedError) as error:
        return str(error)
    return ""


def installed(world: World, files: Mapping[str, str], allow: tuple[str, ...] = ()) -> Installed:
    place = world.place / f"gates-{len(list(world.place.glob('gates-*')))}"
    with patched(place, dict(files), {"x.js": ""}, about=LEFT) as case:
        context = case.with_(clients=allowing(world.clients, allow)).context
        return Installation(context, context.repo, ".").install()


@pytest.mark.parametrize("name", a_choice(NPM, step=4))
def test_a_plan_asks_no_stranger(npm: World, name: str) -> None:
    message = planned(npm, NPM[name](npm))
    npm.untouched()
    assert "secret-of-the-user" not in message


#: Of these the host, its file and the way on are looked at, too.
NAMED = ("v3 lock", "manifest", "yarn resolved", "a package names it", "berry")


@pytest.mark.parametrize("name", [*NAMED, *a_choice((it for it in NPM if it not in NAMED), step=4)])
def test_gates_ask_no_stranger(npm: World, name: str) -> None:
    found = installed(npm, NPM[name](npm))
    npm.untouched()
    assert npm.registry.requests or found.level is Level.METADATA
    if name in NAMED:
        assert f"--allow-host {npm.stranger.host}" in found.in_full
        assert f"{npm.stranger.host} is named by " in found.in_full


@pytest.mark.parametrize("name", ["v3 lock", "manifest", "a package names it"])
def test_an_allowed_host_is_asked(npm: World, name: str) -> None:
    found = installed(npm, NPM[name](npm), allow=(npm.stranger.host,))
    assert npm.stranger.hits
    assert found.level is Level.EVERYTHING, found.in_full


@pytest.mark.parametrize(
    ("where", "name"),
    a_choice(
        itertools.product(
            ("name", "version"), ("git+{url}/x.git", "git+ssh://git@{host}/x.git", "github:a/b")
        ),
        step=4,
    ),
)
def test_no_name_of_a_lock_is_asked_for_as_an_address(npm: World, name: str, where: str) -> None:
    """npm leaves addresses of git to git, which no wall of node's stops."""
    address = name.replace("{url}", npm.stranger.url).replace("{host}", npm.stranger.host)
    at = f"{npm.stranger.url}/strange/-/strange-1.0.0.tgz"
    first = {"version": "1.0.0", "resolved": at, "optional": True, where: address}
    packages = {"first": first, "strange": {"version": "1.0.0", "resolved": at}}
    lock = npm_lock(3, packages, {"left": "1.0.0", "strange": "1.0.0"})
    asked = manifest(dependencies={"left": "1.0.0", "strange": "1.0.0"})
    calls = npm.place / "calls"
    programs = npm.place / "programs"
    programs.mkdir()
    for program in ("git", "ssh"):
        (programs / program).write_text(
            f'#!/bin/sh\ncase "$*" in *ls-remote*|*x.git*) echo "$*" >> {calls};; esac\n'
            f'[ {program} = git ] && exec {shutil.which("git")} "$@"\n'
        )
        (programs / program).chmod(0o755)
    environ = {**npm.clients._environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    npm.clients = SubprocessClients(environ)
    installed(npm, {"package.json": asked, "package-lock.json": lock})
    npm.untouched()
    assert not calls.exists(), calls.read_text()


def test_git_reaches_nobody_from_a_client(npm: World) -> None:
    """Whichever question npm is asked."""
    words = ["view", "--json", f"git+{npm.stranger.url}/x.git", "dist.tarball"]
    npm.clients.run("npm", words, cwd=npm.place, timeout_s=60)
    npm.untouched()


#: Other ways of node's to open a connection.
_QUIET = ".on('error', () => 0)"
WAYS = {
    "http": f"require('http').get('{{url}}/a'){_QUIET}",
    "http options": f"require('http').request({{hostname: '127.0.0.1', port: {{port}}}}){_QUIET}.end()",
    "https": f"require('https').get('https://127.0.0.1:{{port}}/a'){_QUIET}",
    "fetch": "fetch('{url}/a').catch(() => 0)",
    "net": f"require('net').connect({{port}}, '127.0.0.1'){_QUIET}.end('GET / HTTP/1.0')",
    "socket": f"new (require('net').Socket)(){_QUIET}.connect({{host: '127.0.0.1', port: {{port}}}})",
    "http2": f"require('http2').connect('{{url}}'){_QUIET}",
    "module": f"import('node:http').then((it) => it.get('{{url}}/a'){_QUIET})",
    "worker": "new (require('worker_threads').Worker)"
    f"(`require('http').get('{{url}}/a'){_QUIET}`, {{eval: true}})",
}


@pytest.mark.parametrize("way", WAYS)
def test_no_way_of_nodes_reaches_a_stranger(npm: World, way: str) -> None:
    port = npm.stranger.host.rpartition(":")[2]
    code = WAYS[way].replace("{url}", npm.stranger.url).replace("{port}", port)
    done = npm.clients.run("node", ["-e", code], cwd=npm.place, timeout_s=60)
    npm.untouched()
    assert done.refused_hosts == (npm.stranger.host,), done.output
    (npm.place / "x").touch()


def test_an_archive_where_the_registry_says_is_fetched(
    tmp_path: Path, cache: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry of the user's may keep its archives on another host: without a lock, and by one."""
    needs_sandbox()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    universe = Universe().npm("left", "1.0.0").npm("left", "1.2.0")
    with (
        serve(universe) as archives,
        serve(universe, archives_at=archives.url) as registry,
    ):
        environ = {**os.environ, **registry.environ, "HOME": str(home)}
        clients = SubprocessClients({k: v for k, v in environ.items() if v})
        world = World(registry, Stranger(""), clients, tmp_path)
        asked = {"left": "1.0.0"}
        fresh = {"package.json": manifest(dependencies=asked)}
        url = f"{archives.npm_url}left/-/left-1.0.0.tgz"
        entry = {"version": "1.0.0", "resolved": url}
        lock = {"package-lock.json": npm_lock(3, {"left": entry}, asked)}
        for number, more in enumerate(({}, lock)):
            world.place = tmp_path / str(number)
            found = installed(world, {**fresh, **more})
            assert found.level is Level.EVERYTHING, found.in_full
            assert archives.requests, more
            archives.requests.clear()


def test_a_registry_may_lead_to_another_host(
    tmp_path: Path, cache: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Registries redirect to where they keep archives; credentials do not go along."""
    needs_sandbox()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    universe = Universe().npm("left", "1.0.0")
    with serve(universe) as real, stranger(leads_to=real.url) as front:
        environ = {**os.environ, **real.environ, "HOME": str(home)}
        environ |= {k: f"{front.url}/npm/" for k in environ if k.lower() == "npm_config_registry"}
        clients = SubprocessClients({k: v for k, v in environ.items() if v})
        world = World(real, front, clients, tmp_path)
        found = installed(world, {"package.json": manifest(dependencies={"left": "1.0.0"})})
        assert found.level is Level.EVERYTHING, found.in_full
        assert {it.authorization for it in real.requests} == {""}


class _Proxy(BaseHTTPRequestHandler):
    """A proxy of a company's: it fetches what it is asked for, and keeps who was asked."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            urllib.request.Request(self.path, headers={"Accept": self.headers.get("Accept", "*/*")})
        ) as answer:
            body = answer.read()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers.get("Content-Type", ""))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_CONNECT(self) -> None:
        self.asked.append(self.path)
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as there:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=self._pump, args=(there, self.connection), daemon=True)
            back.start()
            self._pump(self.connection, there)
            back.join(10)
        self.close_connection = True

    @staticmethod
    def _pump(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while chunk := one.recv(65536):
                other.sendall(chunk)
            other.shutdown(socket.SHUT_WR)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def proxy() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("_Bound", (_Proxy,), {"asked": asked}))
    with serving(server):
        yield f"http://127.0.0.1:{server.server_port}", asked


@pytest.mark.parametrize("files", ["manifest", "yarn address", "pnpm transitive"])
def test_behind_a_proxy_the_registry_is_asked_and_no_stranger(npm: World, files: str) -> None:
    with proxy() as (url, asked):
        environ = {**npm.clients._environ, "http_proxy": url, "HTTP_PROXY": url, "https_proxy": url}
        environ |= {"HTTPS_PROXY": url}
        environ |= {
            "no_proxy": "",
            "NO_PROXY": "",
            "npm_config_noproxy": "",
            "NPM_CONFIG_NOPROXY": "",
        }
        npm.clients = SubprocessClients({k: v for k, v in environ.items() if v})
        installed(npm, NPM[files](npm))
        clean = installed(npm, {"package.json": manifest(dependencies={"left": "1.0.0"})})
    npm.untouched()
    assert clean.level is Level.EVERYTHING, clean.in_full
    assert any("left" in path for path in asked)
    assert not any(npm.stranger.host in path for path in asked)


# --- uv -------------------------------------------------------------------------------------------

PY = advisory("left", "PyPI")


@pytest.fixture
def pypi(
    tmp_path: Path, cache: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    needs_sandbox()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    universe = Universe().pypi("left", "1.0.0").pypi("left", "1.2.0").pypi("left", "2.0.0")
    mine = (
        "UV_NO_CONFIG",
        "UV_DEFAULT_INDEX",
        "PIP_INDEX_URL",
        "PIP_CONFIG_FILE",
        "XDG_CONFIG_HOME",
    )
    more = {**dict.fromkeys(mine, ""), "UV_INDEX_STRATEGY": "unsafe-best-match"}  # each is asked
    with opened(universe, tmp_path, cache, home, **more) as world:
        settings = home / ".config" / "uv" / "uv.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text(f'[[index]]\nurl = "{world.registry.pypi_url}"\n')
        universe.pypi(
            "names", "1.0.0", [f"strange @ {world.stranger.url}/strange-1.0-py3-none-any.whl"]
        )
        yield world


def requirements(*lines: str, **more: str) -> Callable[[World], dict[str, str]]:
    def files(world: World) -> dict[str, str]:
        texts = {"requirements.txt": "\n".join((*lines, "left==1.0.0")) + "\n"}
        texts |= {f"{name}.txt": text for name, text in more.items()}
        return filled(texts, world)

    return files


def filled(texts: Mapping[str, str], world: World) -> dict[str, str]:
    _, _, port = world.stranger.host.rpartition(":")
    return {
        path: text.replace("{url}", world.stranger.url)
        .replace("{host}", world.stranger.host)
        .replace("{port}", port)
        for path, text in texts.items()
    }


def pyproject(*asked: str, more: str = "", lock: str = "") -> Callable[[World], dict[str, str]]:
    def files(world: World) -> dict[str, str]:
        text = (
            '[project]\nname = "app"\nversion = "0.1"\nrequires-python = ">=3.9"\n'
            f"dependencies = {json.dumps(['left', *asked])}\n{more}"
        )
        texts = {"pyproject.toml": text} | ({"uv.lock": lock} if lock else {})
        found = filled(texts, world)
        return {
            path: text.replace("{index}", world.registry.pypi_url) for path, text in found.items()
        }

    return files


def uv_lock(source: str, *, wheel: str = "{index}/left-1.0.0-py3-none-any.whl") -> str:
    return (
        'version = 1\nrevision = 3\nrequires-python = ">=3.9"\n\n'
        '[[package]]\nname = "app"\nversion = "0.1"\nsource = { virtual = "." }\n'
        'dependencies = [\n    { name = "left" },\n]\n\n'
        '[package.metadata]\nrequires-dist = [{ name = "left" }]\n\n'
        f'[[package]]\nname = "left"\nversion = "1.0.0"\nsource = {{ {source} }}\n'
        f'wheels = [\n    {{ url = "{wheel}", hash = "sha256:{"0" * 64}" }},\n]\n'
    )


WHEEL = "{url}/left-1.0.0-py3-none-any.whl"
UV = {
    "extra index": requirements("--extra-index-url {url}/simple"),
    "index": requirements("-i {url}/simple"),
    "index without a blank": requirements("-i{url}/simple"),
    "index with =": requirements("--index-url={url}/simple"),
    "shortened": requirements("--extra-index {url}/simple"),
    "odd slashes": requirements("--index-url http:{host}/simple"),
    "one slash": requirements("--index-url http:/{host}/simple"),
    "upper case": requirements("--index-url HTTP://{host}/simple"),
    "backslashes": requirements(r"--index-url http:\\{host}\simple"),
    "a number as a host": requirements("--index-url http://2130706433:{port}/simple"),
    "hexadecimal": requirements("--index-url http://0x7f.1:{port}/simple"),
    "percent": requirements("--index-url http://127.0.0.%31:{port}/simple"),
    "credentials": requirements("--index-url http://u:p@{host}/simple"),
    "an allowed name before the host": requirements("--index-url http://pypi.invalid@{host}/simple"),
    "find links": requirements("--find-links {url}/links"),
    "find links, short": requirements("-f {url}/links"),
    "continued": requirements("--extra-index-url \\\n  {url}/simple"),
    "included": requirements("-r more.txt", more="--extra-index-url {url}/simple\n"),
    "as constraints": requirements("-c more.txt", more="--extra-index-url {url}/simple\n"),
    "an include by address": requirements("-r {url}/more.txt"),
    "constraints by address": requirements("-c {url}/more.txt"),
    "an address": requirements("strange @ {url}/strange-1.0-py3-none-any.whl"),
    "a bare address": requirements("{url}/strange-1.0-py3-none-any.whl"),
    "a checkout": requirements("-e git+{url}/strange.git#egg=strange"),
    "a package names it": requirements("names"),
    "uv index": pyproject(more='[[tool.uv.index]]\nname = "x"\nurl = "{url}/simple"\n'),
    "uv default index": pyproject(more='[[tool.uv.index]]\nurl = "{url}/simple"\ndefault = true\n'),
    "uv index, odd": pyproject(more='[[tool.uv.index]]\nurl = "http:{host}/simple"\n'),
    "uv index with a tab": pyproject(more='[[tool.uv.index]]\nurl = "ht\\ttp://{host}/simple"\n'),
    "uv index-url": pyproject(more='[tool.uv]\nindex-url = "{url}/simple"\n'),
    "uv extra-index-url": pyproject(more='[tool.uv]\nextra-index-url = ["{url}/simple"]\n'),
    "uv find-links": pyproject(more='[tool.uv]\nfind-links = ["{url}/links"]\n'),
    "uv pip index": pyproject(more='[tool.uv.pip]\nindex-url = "{url}/simple"\n'),
    "uv source": pyproject(more=f'[tool.uv.sources]\nleft = {{ url = "{WHEEL}" }}\n'),
    "uv sources by marker": pyproject(
        more=f'[tool.uv.sources]\nleft = [{{ url = "{WHEEL}", marker = "python_version > \'3\'" }}]\n'
    ),
    "uv git source": pyproject(more='[tool.uv.sources]\nleft = { git = "{url}/left" }\n'),
    "uv constraints": pyproject(more=f'[tool.uv]\nconstraint-dependencies = ["left @ {WHEEL}"]\n'),
    "uv overrides": pyproject(more=f'[tool.uv]\noverride-dependencies = ["left @ {WHEEL}"]\n'),
    "PEP 508": pyproject("strange @ {url}/strange-1.0-py3-none-any.whl"),
    "a group": pyproject(more='[dependency-groups]\ntest = ["x @ {url}/x-1-py3-none-any.whl"]\n'),
    **{
        f"{kind}, locked": pyproject(more=more, lock=uv_lock('registry = "{index}"'))
        for kind, more in {
            "uv index": '[[tool.uv.index]]\nurl = "{url}/simple"\n',
            "uv default index": '[[tool.uv.index]]\nurl = "{url}/simple"\ndefault = true\n',
            "uv index, odd": '[tool.uv]\nindex-url = "http:{host}/simple"\n',
            "uv extra-index-url": '[tool.uv]\nextra-index-url = ["{url}/simple"]\n',
            "uv source": f'[tool.uv.sources]\nleft = {{ url = "{WHEEL}" }}\n',
            "uv overrides": f'[tool.uv]\noverride-dependencies = ["left @ {WHEEL}"]\n',
        }.items()
    },
    "a lock's registry": pyproject(lock=uv_lock('registry = "{url}/simple"', wheel=WHEEL)),
    "a lock's archive, odd": pyproject(
        lock=uv_lock('registry = "{index}"', wheel=WHEEL.replace("{url}", "ht\\ttp://{host}"))
    ),
    "a lock's registry, odd": pyproject(
        lock=uv_lock('registry = "http:{host}/simple"', wheel=WHEEL.replace("{url}", "http:{host}"))
    ),
    "a lock's archive": pyproject(lock=uv_lock('registry = "{index}"', wheel=WHEEL)),
    "a lock's address": pyproject(lock=uv_lock(f'url = "{WHEEL}"', wheel=WHEEL)),
    "Poetry": lambda world: filled(
        {
            "pyproject.toml": '[tool.poetry]\nname = "app"\nversion = "1"\n[tool.poetry.dependencies]\n'
            'python = "*"\nleft = "1.0.0"\n[[tool.poetry.source]]\nname = "x"\nurl = "{url}/simple"\n',
            "poetry.lock": '[[package]]\nname = "left"\nversion = "1.0.0"\nfiles = []\n'
            '[package.source]\ntype = "legacy"\nurl = "{url}/simple"\nreference = "x"\n',
        },
        world,
    ),
    "Pipfile": lambda world: filled(
        {
            "Pipfile": '[[source]]\nname = "x"\nurl = "{url}/simple"\nverify_ssl = false\n'
            '[packages]\nleft = "==1.0.0"\n',
            "Pipfile.lock": '{"_meta": {"sources": [{"name": "x", "url": "{url}/simple"}]},'
            ' "default": {"left": {"version": "==1.0.0", "index": "x"}}}',
        },
        world,
    ),
    "setup.cfg": lambda world: filled(
        {
            "setup.cfg": "[metadata]\nname = app\n[options]\ninstall_requires = left==1.0.0\n"
            "dependency_links = {url}/links\n",
            "requirements.txt": "left==1.0.0\n",
        },
        world,
    ),
    "settings": lambda world: filled(
        {
            "requirements.txt": "left==1.0.0\n",
            "uv.toml": 'index-url = "{url}/simple"\n',
            "pip.conf": "[global]\nindex-url = {url}/simple\n",
            ".netrc": "machine 127.0.0.1 login a password b\n",
        },
        world,
    ),
}  # fmt: skip


def py_planned(world: World, files: Mapping[str, str]) -> str:
    repo = repository(world.place / "plan", files)
    plugin = build_pypi(world.clients)
    selection = plugin.select(PY, repo)
    if not isinstance(selection, Selected):
        return selection.sentence
    try:
        plugin.apply(selection, PY, repo)
    except (RecipeError, ToolFailedError) as error:
        return str(error)
    return ""


def py_installed(world: World, files: Mapping[str, str], allow: tuple[str, ...] = ()) -> str:
    """What could not be installed, in words; the error's, if no attempt was made."""
    place = world.place / f"gates-{len(list(world.place.glob('gates-*')))}"
    with patched(place, dict(files), {"x.py": ""}, about=PY) as case:
        context = case.with_(clients=allowing(world.clients, allow)).context
        try:
            found = Environment(context, context.repo, ".").install()
        except ToolFailedError as error:
            return str(error)
        return found.in_full


@pytest.mark.parametrize("name", a_choice(UV, step=4))
def test_a_plan_asks_no_strange_index(pypi: World, name: str) -> None:
    message = py_planned(pypi, UV[name](pypi))
    pypi.untouched()
    assert "secret-of-the-user" not in message


#: Of these the index, its file and the way on are looked at, too.
UV_NAMED = (
    "extra index",
    "included",
    "uv index",
    "uv source",
    "a lock's registry",
    "a lock's archive",
)


@pytest.mark.parametrize(
    "name", [*UV_NAMED, *a_choice((it for it in UV if it not in UV_NAMED), step=4)]
)
def test_gates_ask_no_strange_index(pypi: World, name: str) -> None:
    message = py_installed(pypi, UV[name](pypi))
    pypi.untouched()
    assert "secret-of-the-user" not in message
    if name in UV_NAMED:
        assert f"--allow-host {pypi.stranger.host}" in message
        assert f"{pypi.stranger.host} is named by " in message


@pytest.mark.parametrize("name", ["extra index", "uv index", "uv source", "a lock's archive"])
def test_an_allowed_index_is_asked(pypi: World, name: str) -> None:
    py_installed(pypi, UV[name](pypi), allow=(pypi.stranger.host,))
    assert pypi.stranger.hits


# --- the command ----------------------------------------------------------------------------------


def fixed(
    world: World, files: Mapping[str, str], ecosystem: str, *more: str
) -> tuple[Ended, list[Any]]:
    """How ``fix`` ended, and the payloads that it recorded."""
    repo = command_repository(world.place / "repo", files)
    record = world.place / "advisory.json"
    record.write_text(osv("left", ecosystem=ecosystem, fixed="1.2.0", id="LEFT-1"))
    own = ("--state-dir", world.place / "state", "--keys", world.place / "keys")
    environ = {**world.registry.environ, "HOME": os.environ["HOME"], "NETRC": os.environ["NETRC"]}
    ended = run("fix", repo, "--advisory", record, "--json", *own, *more, env=environ)
    assert run("audit", "verify", *own).code == 0
    events = run("audit", "show", ended.json["fix_id"], *own, "--json").json
    return ended, events["events"]


def test_hosts_are_on_record(npm: World) -> None:
    allowed = ("--allow-host", "registry.acme.invalid:8443")
    ended, events = fixed(npm, by_lock(3)(npm), "npm", *allowed)
    npm.untouched()
    payloads = [event["payload"] for event in events]
    (start,) = [one for one in payloads if one["kind"] == "FixStarted"]
    own = npm.registry.url.removeprefix("http://")
    assert {own, "registry.acme.invalid:8443"} <= set(start["allowed_hosts"])
    refused = {host for one in payloads for host in one.get("refused_hosts", ())}
    assert refused == {npm.stranger.host}
    assert ended.json["outcome"] != "error"


def test_a_plan_says_what_to_allow_and_asks_what_is_allowed(pypi: World) -> None:
    files = UV["uv index, locked"](pypi)
    record = pypi.place / "advisory.json"
    record.write_text(osv("left", ecosystem="PyPI", fixed="1.2.0", id="LEFT-1"))
    repo = command_repository(pypi.place / "repo", files)
    environ = {**pypi.clients._environ, "UV_DEFAULT_INDEX": pypi.registry.pypi_url}
    environ["UV_NO_CONFIG"] = ""
    ended = run("plan", repo, "--advisory", record, "--json", env=environ)
    (left,) = ended.json["left"]
    host = pypi.stranger.host
    assert f"{host} is named by pyproject.toml" in left["sentence"]
    assert f"--allow-host {host}" in left["next_step"]
    pypi.untouched()
    again = run("plan", repo, "--advisory", record, "--allow-host", host, env=environ)
    assert pypi.stranger.hits, again


@pytest.mark.parametrize("host", ["", "http://a", "a:b", "a/b", "-", "a:123456"])
def test_what_is_not_a_host_is_bad_input(tmp_path: Path, host: str) -> None:
    ended = run("plan", tmp_path, "--advisory", tmp_path / "a.json", f"--allow-host={host}")
    assert ended.code == 2
    assert "HOST" in (ended.out + ended.err)


def test_uv_follows_a_lock_to_where_its_registry_keeps_archives(
    tmp_path: Path, home: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_sandbox()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    universe = Universe().pypi("left", "1.0.0")
    with (
        serve(universe) as archives,
        serve(universe, archives_at=archives.url) as registry,
    ):
        environ = {**os.environ, **registry.environ, "UV_NO_CONFIG": "", "HOME": str(home)}
        clients = SubprocessClients({k: v for k, v in environ.items() if v})
        made = tmp_path / "made"
        made.mkdir()
        text = '[project]\nname = "app"\nversion = "0.1"\nrequires-python = ">=3.9"\n'
        (made / "pyproject.toml").write_text(text + 'dependencies = ["left"]\n')
        assert clients.run("uv", ["lock"], cwd=made, timeout_s=60).ok
        lock = (made / "uv.lock").read_text()
        assert archives.url in lock
        files = {"pyproject.toml": (made / "pyproject.toml").read_text(), "uv.lock": lock}
        world = World(registry, Stranger(""), clients, tmp_path)
        assert py_installed(world, files) == ""
        assert any(path.endswith(".whl") for path in archives.paths())


def test_uv_is_not_started_over_what_it_alone_may_read(pypi: World) -> None:
    """A lock that is not TOML to us may be TOML to uv, and name a host."""
    lock = uv_lock('registry = "{index}"', wheel=WHEEL) + 'x = "\\e"\n'
    message = py_installed(pypi, pyproject(lock=lock)(pypi))
    pypi.untouched()
    assert message
