"""Two registries, one of a scope and behind a token: what is asked of which, and where the token goes."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fallback_audit.vocabulary import BlockerKind, RefusalReason
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.pnpm import PNPM, PnpmClient
from fallback_plugins.npm.clients.provision import ClientStore, PinnedClient
from fallback_plugins.npm.clients.scopes import SCOPE_LINE, Scopes, scoped
from fallback_plugins.npm.clients.yarn import YARN, YarnClient
from fallback_tier.advisory import bundle
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import RecipeResult
from fallback_tier.sandbox.clients import SubprocessClients
from tests.choice import a_choice
from tests.registry import Registry, Universe, serve
from tests.unit.npm.world import (
    Counting,
    World,
    bad,
    lock,
    manifest,
    project,
    versions,
)
from tests.unit.shared.real_clients import provisioned
from tests.unit.shared.recipes import repository

TOKEN = "a-token-that-nobody-may-see"
ACME = bad("@acme/leaf", ("0", "1.2.0"))
LEAF = bad("leaf", ("0", "1.2.0"))


@dataclass(frozen=True)
class Two:
    """The registry of everything, and that of @acme, which asks for a token."""

    public: Registry
    private: Registry
    folder: Path

    @property
    def place(self) -> str:
        """The private registry as an npmrc names what its credentials are for."""
        return self.private.npm_url.removeprefix("http:")

    def line(self) -> str:
        return f"@acme:registry={self.private.npm_url}\n"

    def world(self, *user: str) -> World:
        """Real npm, with these lines as the user's own configuration."""
        npmrc = self.folder / "home" / "npmrc"
        npmrc.parent.mkdir(exist_ok=True)
        npmrc.write_text("".join([f"registry={self.public.npm_url}\n", *user]))
        environ = {k: v for k, v in os.environ.items() if k.lower() != "npm_config_registry"}
        for name, value in self.public.environ.items():
            if name.lower() == "npm_config_userconfig":
                environ[name] = str(npmrc)
            elif name.lower() != "npm_config_registry":
                environ[name] = value
        return World(
            self.public.universe, Counting(SubprocessClients(environ)), self.folder / "repo"
        )

    @property
    def token_line(self) -> str:
        return f"{self.place}:_authToken={TOKEN}\n"

    def entry(self, name: str) -> dict[str, str]:
        """A lock's entry for 1.0.0, with the address that it came from."""
        registry = self.private if name.startswith("@") else self.public
        file = name.rpartition("/")[2]
        return {"version": "1.0.0", "resolved": f"{registry.npm_url}{name}/-/{file}-1.0.0.tgz"}

    def files(self, *names: str, **more: str) -> dict[str, str]:
        asked = dict.fromkeys(names, "^1.0.0")
        found = project(asked, {name: self.entry(name) for name in names})
        return {**found, **({".npmrc": more["npmrc"]} if more else {})}

    def check(self) -> None:
        """The public registry was asked for nothing of the scope, and got no credentials."""
        assert not any("acme" in request.path for request in self.public.requests)
        assert {request.authorization for request in self.public.requests} <= {""}


@contextmanager
def two(folder: Path) -> Iterator[Two]:
    public, private = Universe(), Universe()
    for version in ("1.0.0", "1.2.0"):
        public.npm("leaf", version)
        private.npm("@acme/leaf", version)
    private.npm("@acme/top", "1.0.0", {"@acme/leaf": "1.0.0"})
    private.npm("@acme/top", "1.1.0", {"@acme/leaf": "1.2.0"})
    with serve(public) as one, serve(private, token=TOKEN) as other:
        yield Two(one, other, folder)


def told(result: RecipeResult) -> str:
    return result.model_dump_json()


@pytest.mark.parametrize("where", ["all of it the user's", "the scope named by the project"])
def test_a_scopes_package_comes_from_its_own_registry(tmp_path: Path, where: str) -> None:
    with two(tmp_path) as both:
        if where.startswith("all"):
            here, files = both.world(both.line(), both.token_line), both.files("@acme/leaf")
        else:
            here, files = both.world(both.token_line), both.files("@acme/leaf", npmrc=both.line())
        result = here.fix(ACME, files)
        both.check()
        assert {it.authorization for it in both.private.requests} == {f"Bearer {TOKEN}"}
        assert both.private.npm_url in told(result)
    assert versions(result) == {"@acme/leaf": "1.2.0"}
    assert TOKEN not in told(result)
    assert not any(TOKEN in word for call in here.clients.calls for word in call)
    # Where the user put it, and nowhere else.
    found = [it for it in tmp_path.rglob("*") if it.is_file() and TOKEN.encode() in it.read_bytes()]
    assert found == [tmp_path / "home" / "npmrc"]


def test_a_parent_of_the_scope_is_raised(tmp_path: Path) -> None:
    with two(tmp_path) as both:
        top = {**both.entry("@acme/top"), "dependencies": {"@acme/leaf": "1.0.0"}}
        installed = {"@acme/leaf": both.entry("@acme/leaf"), "@acme/top": top}
        files = {**project({"@acme/top": "1.0.0"}, installed), ".npmrc": both.line()}
        result = both.world(both.token_line).fix(ACME, files)
        both.check()
    assert versions(result) == {"@acme/leaf": "1.2.0", "@acme/top": "1.1.0"}


def test_a_registry_that_only_the_project_names_is_not_asked(tmp_path: Path) -> None:
    """Nor is the public one asked in its place: a package of that name there is another one."""
    with two(tmp_path) as both:
        both.public.universe.npm("@acme/leaf", "1.2.0")
        with pytest.raises(RecipeError) as caught:
            both.world().fix(ACME, both.files("@acme/leaf", npmrc=both.line()))
        host = both.private.npm_url.split("/")[2]
        assert both.private.requests == []
        both.check()
    assert caught.value.reason is RefusalReason.RESOLVER_FAILED
    assert f"@acme/leaf comes from {host} by .npmrc" in caught.value.problem
    assert f"npm config set @acme:registry http://{host}/npm/" in caught.value.next_step


@pytest.mark.parametrize("version", a_choice((1, 2, 3), step=2))
def test_what_does_not_need_it_is_fixed_all_the_same(tmp_path: Path, version: int) -> None:
    with two(tmp_path) as both:
        files = both.files("leaf", "@acme/leaf", npmrc=both.line())
        entries = {name: both.entry(name) for name in ("leaf", "@acme/leaf")}
        root = {"dependencies": dict.fromkeys(entries, "^1.0.0")}
        text = lock(root, entries, version)
        if version == 1:
            head = {"name": "app", "version": "1.0.0", "lockfileVersion": 1, "requires": True}
            text = json.dumps({**head, "dependencies": entries}, indent=2) + "\n"
        elif version == 2:
            text = json.dumps({**json.loads(text), "dependencies": entries}, indent=2) + "\n"
        files["package-lock.json"] = text
        result = both.world().fix(LEAF, files)
        assert both.private.requests == []
        both.check()
    new = json.loads(here_text(result))
    packages = new["dependencies"] if version == 1 else new["packages"]
    key = "" if version == 1 else "node_modules/"
    assert packages[f"{key}leaf"]["version"] == "1.2.0"
    assert packages[f"{key}@acme/leaf"] == entries["@acme/leaf"]


def here_text(result: RecipeResult) -> str:
    (change,) = result.changes
    assert change.after is not None
    return change.after


@pytest.mark.parametrize("fault", ["without a token", "out of reach"])
def test_of_two_advisories_the_one_that_can_be_is_fixed(tmp_path: Path, fault: str) -> None:
    """The user's own registry for the scope does not answer: which scope, and which host, is said."""
    second = ACME.model_copy(update={"id": "OSV-TEST-2"})
    with two(tmp_path) as both:
        files, host = both.files("leaf", "@acme/leaf"), both.private.npm_url.split("/")[2]
        line = both.line()
        if fault == "out of reach":
            host, line = "127.0.0.1:9", "@acme:registry=http://127.0.0.1:9/\n"
        result = both.world(line).fix(bundle([LEAF, second]), files)
        both.check()
    assert [move.package for move in result.moves] == ["leaf"]
    (left,) = result.left
    assert (left.package, left.advisory_ids) == ("@acme/leaf", ("OSV-TEST-2",))
    named = [it for step in left.declined for it in step.blockers if it.host]
    assert {(it.kind, it.host) for it in named} == {(BlockerKind.REGISTRY, host)}, left
    assert {it.setting for it in named} == {"@acme:registry"}


def test_a_projects_file_redirects_nothing_else(tmp_path: Path) -> None:
    """No registry for everything, no other scope than it names, no credentials, and no program."""
    with two(tmp_path) as both, serve(Universe()) as evil:
        evil_host = evil.npm_url.removeprefix("http:")
        npmrc = (
            f"registry={evil.npm_url}\n@other:registry={evil.npm_url}\n{evil_host}:_authToken=${{TOKEN}}\n"
            f"@acme:registry={evil.npm_url}\nscript-shell=/bin/false\nhttps-proxy={evil.npm_url}\n"
        )
        # The user's own word on a scope stands, whatever the project says.
        files = both.files("leaf", "@acme/leaf", npmrc=npmrc)
        here = both.world(both.line(), both.token_line)
        result = here.fix(bundle([LEAF, ACME.model_copy(update={"id": "OSV-TEST-2"})]), files)
        assert evil.requests == []
        both.check()
    assert versions(result) == {"leaf": "1.2.0", "@acme/leaf": "1.2.0"}


@pytest.mark.parametrize(
    "line",
    ["@a:registry=${HOME}", "@a:registry=http://u:p@h/", "@a:registry=file:///etc", "a:registry=http://h/",
     "@a/b:registry=http://h/", "@a:registry=http://h/?x=1", "@A_b:registry=http://h/", "@a:_auth=x"],
)  # fmt: skip
def test_lines_that_are_no_plain_registry_of_a_scope_are_not_read(line: str) -> None:
    assert SCOPE_LINE.fullmatch(line) is None


@pytest.mark.parametrize(
    ("url", "known"),
    [
        ("{base}", True),
        ("{base}below/", True),
        ("{base}../x/", False),
        ("{root}", False),
        ("{root}npmx/", False),
    ],
)
def test_a_place_is_the_users_only_below_what_the_user_named(
    tmp_path: Path, url: str, known: bool
) -> None:
    """One host can have many registries: a token for one is no word on another."""
    with two(tmp_path) as both:
        url = url.format(base=both.private.npm_url, root=both.private.url + "/")
        here = both.world(both.token_line)
        found = Scopes.of(
            Files(".", {}, settings={".npmrc": f"@acme:registry={url}\n"}), here.clients
        )
    assert (bool(found.granted), bool(found.refused)) == (known, not known)


@pytest.mark.registry("npm")
@pytest.mark.parametrize(
    "pinned",
    [pytest.param(YARN, marks=pytest.mark.xdist_group("yarn-real")),
     pytest.param(PNPM["9"], marks=pytest.mark.xdist_group("pnpm-real"))],
    ids=["yarn", "pnpm"],
)  # fmt: skip
def test_yarn_and_pnpm_are_told_too(tmp_path: Path, pinned: PinnedClient) -> None:
    folder = provisioned(tmp_path / "clients", pinned)
    text = manifest(dependencies={"@acme/leaf": "^1.0.0", "leaf": "1.0.0"})
    with two(tmp_path) as both:
        here = both.world(both.token_line, f"{both.place}:always-auth=true\n")
        settings = {".npmrc": both.line()}
        name, empty = "pnpm-lock.yaml", "lockfileVersion: '9.0'\n"
        if pinned is YARN:
            name, empty = "yarn.lock", ""
        files = Files(".", {"package.json": text}, name, empty, settings)
        store = ClientStore(here.clients, folder)
        clients = scoped(files, here.clients)
        client = YarnClient(clients, store) if pinned is YARN else PnpmClient(clients, store)
        made = client.resolve(files)
        both.check()
        assert {it.authorization for it in both.private.requests} == {f"Bearer {TOKEN}"}
    assert [node.version for node in client.tree(made).of("@acme/leaf")] == ["1.2.0"]
    assert TOKEN not in made.lock_text


def test_without_such_lines_nothing_is_asked_about_them(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"package.json": "{}", ".npmrc": "legacy-peer-deps=true\n"})
    assert repo.has(".npmrc")
    files: Mapping[str, str] = {".npmrc": "legacy-peer-deps=true\n"}
    inner = Counting(SubprocessClients({}))
    assert scoped(Files(".", {}, settings=files), inner) is inner
    assert inner.calls == []
