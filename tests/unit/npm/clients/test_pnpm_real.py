"""The real pnpm 7, 8 and 9 over a made-up registry on loopback."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.pnpm import PNPM, PnpmClient
from fallback_plugins.npm.clients.provision import ClientStore
from fallback_plugins.npm.clients.registry import NpmRegistry
from fallback_plugins.npm.locks.pnpm_lock import parse_pnpm_lock
from fallback_plugins.npm.manifests.declaring import declare, of_other_lines
from fallback_plugins.npm.manifests.pnpm_workspace import FILE
from fallback_plugins.npm.strategies.all_strategies import Override, RefreshOrBump
from fallback_plugins.npm.strategies.parents import ParentWalk
from fallback_plugins.npm.strategies.resolving import Resolver, judge_of
from fallback_plugins.npm.strategies.targets import Targets
from fallback_tier.errors import RecipeError
from tests.choice import a_choice
from tests.kinds import OfKind
from tests.registry.universe import Universe
from tests.unit.shared.real_clients import loopback, provisioned
from tests.unit.shared.recipes import advisory

pytestmark = [pytest.mark.registry("npm"), pytest.mark.xdist_group("pnpm-real")]

UNIVERSE = (
    Universe()
    .npm("leaf", "1.0.0")
    .npm("leaf", "1.1.0")
    .npm("leaf", "1.3.0")
    .npm("below", "1.0.0")
    .npm("mid", "1.0.0", {"leaf": "^1.0.0", "below": "^1.0.0"})
    .npm("strict", "1.0.0", {"leaf": "1.0.0"})
    .npm("strict", "1.1.0", {"leaf": "1.1.0"})
    .npm("plugin", "1.0.0", peerDependencies={"leaf": "~1.0.0"})
    .npm("plugin", "1.1.0", peerDependencies={"leaf": "^1.1.0"})
    .npm("plugin", "1.2.0", peerDependencies={"leaf": "^1.1.0"})
)

LEAF = advisory("npm", "leaf", [("0", "1.1.0")])

MANIFESTS = {
    "package.json": {"name": "r", "version": "1.0.0", "dependencies": {"leaf": "^1.0.0"}},
    "one/package.json": {"name": "one", "version": "1.0.0", "dependencies": {"mid": "^1.0.0"}},
    "two/package.json": {
        "name": "two",
        "version": "1.0.0",
        "dependencies": {"strict": "1.0.0", "one": "workspace:*"},
    },
}


#: pnpm's major number, and the version of the locks that it writes.
FORMATS = [("9", "'9.0'"), ("6", "'6.0'"), ("5", "5.4")]


# The newest runs with the suite; locks of the older ones: test_pnpm_lock.py.
@pytest.fixture(scope="module", params=a_choice(((one,) for one in FORMATS), step=3), ids=str)
def pnpm(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[PnpmClient, Files]]:
    """A client, and a project whose lock has every package as old as can be."""
    major, version = request.param
    folder = provisioned(tmp_path_factory.mktemp("pnpm-clients"), PNPM[major])
    with loopback(UNIVERSE, tmp_path_factory.mktemp("pnpm")) as (clients, _):
        client = PnpmClient(clients, ClientStore(clients, folder))
        texts = {path: json.dumps(one) for path, one in MANIFESTS.items()}
        settings = {"pnpm-workspace.yaml": "packages:\n  - one\n  - two\n"}
        empty = f"lockfileVersion: {version}\n"
        fresh = client.resolve(Files(".", texts, "pnpm-lock.yaml", empty, settings))
        yield client, client.resolve(fresh, {("leaf", "1.3.0"): "1.0.0"})


def held(client: PnpmClient, files: Files) -> dict[str, str]:
    """Who has which leaf."""
    tree = client.tree(files)
    return {
        dependent.name: node.version
        for node in tree.of("leaf")
        for dependent, _ in tree.dependents(node.key)
    }


def test_archive_of_the_repository_is_there_when_pnpm_resolves(
    pnpm: tuple[PnpmClient, Files],
) -> None:
    client, files = pnpm
    manifest = {**MANIFESTS["one/package.json"], "dependencies": {"packed": "file:packed.tgz"}}
    named = replace(files, manifests={**files.manifests, "one/package.json": json.dumps(manifest)})
    with pytest.raises(RecipeError) as caught:
        client.resolve(named)
    assert caught.value.reason is RefusalReason.RESOLVER_FAILED
    (packed,) = (
        Universe().npm("packed", "1.2.3", {"leaf": "^1.0.0"}).npm_packages["packed"].values()
    )
    after = client.resolve(replace(named, archives={"one/packed.tgz": packed.tarball}))
    (node,) = client.tree(after).of("packed")
    assert [ask.name for ask in node.asks] == ["leaf"]


def test_a_wish_is_granted_where_the_ranges_admit_it(pnpm: tuple[PnpmClient, Files]) -> None:
    client, files = pnpm
    assert held(client, files) == {"r": "1.0.0", "mid": "1.0.0", "strict": "1.0.0"}
    after = client.resolve(files, {("leaf", "1.0.0"): "1.1.0"})
    assert held(client, after) == {"r": "1.1.0", "mid": "1.1.0", "strict": "1.0.0"}
    assert after.manifests == files.manifests
    assert "overrides" not in after.lock_text
    first, second = files.lock_text.partition("\n")[0], after.lock_text.partition("\n")[0]
    assert first == second


def test_an_update(pnpm: tuple[PnpmClient, Files]) -> None:
    client, files = pnpm
    updated = client.update(files, ["leaf"])
    assert held(client, updated) == {"r": "1.3.0", "mid": "1.3.0", "strict": "1.0.0"}
    # What no project asks for itself is looked up anew, too: it is not dropped.
    assert client.update(files, ["below"]).lock_text == files.lock_text


def test_a_parent_whose_range_excludes_the_fix_is_raised(pnpm: tuple[PnpmClient, Files]) -> None:
    """pnpm's lock doesn't say which range anybody asks for: the registry does."""
    client, files = pnpm
    tree, targets = client.tree(files), Targets(LEAF, NpmRegistry(client.clients))
    (leaf,) = tree.of("leaf")
    changes = ParentWalk(tree, targets, {}).changes(leaf)
    assert (changes.declares, changes.wanted_versions) == ({("strict", "strict"): "1.1.0"}, {})


def test_what_requires_it_as_a_peer_moves_along_within_its_range(
    pnpm: tuple[PnpmClient, Files],
) -> None:
    client, start = pnpm
    version = start.lock_text.partition("\n")[0]
    asked = {"name": "r", "dependencies": {"leaf": "^1.0.0", "plugin": "^1.0.0"}}
    texts = {"package.json": json.dumps(asked)}
    fresh = client.resolve(Files(".", texts, "pnpm-lock.yaml", f"{version}\n"))
    old = {("leaf", "1.3.0"): "1.0.0", ("plugin", "1.2.0"): "1.0.0"}
    resolver, targets = Resolver(client), Targets(LEAF, NpmRegistry(client.clients))
    at = resolver.resolve(fresh, old)
    assert {it.label for it in at.tree.nodes.values()} == {"leaf 1.0.0", "plugin 1.0.0"}
    reached = RefreshOrBump(resolver, targets, judge_of(LEAF)).refresh(at, ("leaf",))
    after = reached.position
    assert {it.label for it in after.tree.nodes.values()} == {"leaf 1.1.0", "plugin 1.1.0"}
    assert after.files.manifests == texts
    assert reached.raised == {"leaf": ("plugin 1.1.0",)}


def test_an_override_of_whose_range_excludes_the_fix_and_a_refresh_of_the_others(
    pnpm: tuple[PnpmClient, Files],
) -> None:
    client, files = pnpm
    resolver, targets = Resolver(client), Targets(LEAF, NpmRegistry(client.clients))
    override = Override(resolver, targets, judge_of(LEAF))
    forced = override.attempt(resolver.position(files), ("leaf",)).position.files
    assert held(client, forced) == {"r": "1.1.0", "mid": "1.1.0", "strict": "1.1.0"}
    assert "strict>leaf: 1.1.0" in forced.lock_text
    (manifest,) = (text for path, text in forced.manifests.items() if path == "package.json")
    assert json.loads(manifest)["pnpm"] == {"overrides": {"strict>leaf": "1.1.0"}}
    assert set(parse_pnpm_lock(forced.lock_text).importers) == {".", "one", "two"}


def test_an_entry_of_a_catalog_is_raised_alone_and_the_lock_answers_it(
    pnpm: tuple[PnpmClient, Files],
) -> None:
    client, start = pnpm
    if not start.lock_text.startswith("lockfileVersion: '9.0'"):
        pytest.skip("pnpm has catalogs since version 9")
    workspace = (
        "packages:\n  - one\n\ncatalog:\n  leaf: 1.3.0\n\ncatalogs:\n"
        "  legacy:  # the old line\n    other: 1.0.0\n    \"leaf\": '1.0.0'   # pinned\n"
    )
    texts = {
        path: json.dumps({"name": path[0], "dependencies": {"leaf": spec}})
        for path, spec in {"package.json": "catalog:", "one/package.json": "catalog:legacy"}.items()
    }
    blank = Files(".", texts, "pnpm-lock.yaml", "lockfileVersion: '9.0'\n", {FILE: workspace})
    files = client.resolve(blank)
    tree = client.tree(files)
    assert {(ask.name, ask.spec) for root in tree.roots for ask in root.asks} == {
        ("leaf", "1.3.0"),
        ("leaf", "1.0.0"),
    }
    old = next(node for node in tree.of("leaf") if node.version == "1.0.0")
    others = of_other_lines(files, tree, old)
    raised = declare(files, "leaf", {"leaf"}, "1.1.0", but_for=others)
    assert raised.manifests == files.manifests
    assert raised.text(FILE) == workspace.replace("'1.0.0'   # pinned", "'1.1.0'   # pinned")
    after = client.resolve(raised)
    assert sorted(node.version for node in client.tree(after).of("leaf")) == ["1.1.0", "1.3.0"]
    assert client.resolve(after).lock_text == after.lock_text


def patched(files: Files, digest: str) -> Files:
    """The project with a patch of a package that no fix moves; ``digest`` is of pnpm 10's form."""
    path = "patches/below.patch"
    settings = f"{files.text(FILE)}patchedDependencies:\n  below@1.0.0: {path}\n"
    lock = files.lock_text
    for old, new in (
        ("  below@1.0.0: {}", "  below@1.0.0({}): {{}}"),
        ("below: 1.0.0", "below: 1.0.0({})"),
    ):
        assert lock.count(old) == 1
        lock = lock.replace(old, new.format(f"patch_hash={digest}"))
    head = f"patchedDependencies:\n  below@1.0.0:\n    hash: {digest}\n    path: {path}\n\n"
    lock = lock.replace("importers:\n", f"{head}importers:\n")
    return files.with_manifest(FILE, settings).with_lock(lock)


def test_a_patched_package_stays_as_it_is_locked(pnpm: tuple[PnpmClient, Files]) -> None:
    """The older pnpm that resolves writes another digest of a patch; the lock keeps its own."""
    client, files = pnpm
    if not files.lock_text.startswith("lockfileVersion: '9"):
        pytest.skip("older locks write a patch in another way")
    before = patched(files, "c0ffee" * 10)
    after = client.resolve(before, {("leaf", "1.0.0"): "1.1.0"})
    assert held(client, after) == {"r": "1.1.0", "mid": "1.1.0", "strict": "1.0.0"}
    assert after.lock_text.count("c0ffee" * 10) == before.lock_text.count("c0ffee" * 10) == 3
    unlocked = before.with_lock(files.lock_text)
    with pytest.raises(RecipeError, check=OfKind("patch_missing"), match=r"below@1\.0\.0"):
        client.resolve(unlocked)


@pytest.mark.parametrize(
    "path",
    [
        ".npmrc",
        "pnpm-workspace.yaml",
        ".pnpmfile.cjs",
        ".patch",
        "/x/a.patch",
        "../a.patch",
        "b/../a.diff",
    ],
)
def test_a_file_that_is_no_patch_is_refused_by_its_name(
    pnpm: tuple[PnpmClient, Files], path: str
) -> None:
    """pnpm would read its settings from it."""
    client, files = pnpm
    patched = {"registry=http://127.0.0.1:9/\n": path}
    text = json.dumps({**MANIFESTS["package.json"], "pnpm": {"patchedDependencies": patched}})
    with pytest.raises(RecipeError) as refused:
        client.resolve(files.with_manifest("package.json", text))
    assert refused.value.reason is RefusalReason.RECIPE_UNSUPPORTED
    assert f"names {path!r} for 'registry=" in refused.value.problem


def test_overrides_of_the_workspace_are_raised_where_they_are_each_in_its_own_line(
    pnpm: tuple[PnpmClient, Files],
) -> None:
    client, start = pnpm
    if not start.lock_text.startswith("lockfileVersion: '9.0'"):
        pytest.skip("pnpm reads overrides from the workspace's file since version 10")
    workspace = (
        'catalog:\n  leaf: 1.0.0\noverrides:\n  mid>leaf: "1.0.0"  # held\n  leaf@2: 2.0.0\n'
        "  below>leaf: 'catalog:'\n"
    )
    texts = {"package.json": json.dumps({"name": "r", "dependencies": {"mid": "^1.0.0"}})}
    blank = Files(".", texts, "pnpm-lock.yaml", "lockfileVersion: '9.0'\n", {FILE: workspace})
    files = client.resolve(blank)
    assert held(client, files) == {"mid": "1.0.0"}
    resolver, judge = Resolver(client), judge_of(LEAF)
    steps = RefreshOrBump(resolver, Targets(LEAF, None), judge)
    after = steps.direct(resolver.position(files), ("leaf",)).position.files
    assert held(client, after) == {"mid": "1.1.0"}
    raised = workspace.replace('"1.0.0"  # held', '"1.1.0"  # held')
    assert after.text(FILE) == raised.replace("catalog:\n  leaf: 1.0.0", "catalog:\n  leaf: 1.1.0")
    assert after.manifests == files.manifests
    # What is new goes to where the others are.
    more = client.with_override(after, "other", "leaf", "1.1.0")
    assert "overrides:\n  other>leaf: 1.1.0\n  mid>leaf" in more.text(FILE)


@pytest.mark.parametrize("wanted", ["pnpm@11.2.0", "pnpm@10.4.0", None])
def test_a_new_override_goes_to_where_the_projects_pnpm_reads_it(
    pnpm: tuple[PnpmClient, Files], wanted: str | None
) -> None:
    client, _ = pnpm
    named = {"packageManager": wanted} if wanted else {}
    texts = {"package.json": json.dumps({"name": "r", **named})}
    files = Files(".", texts, "pnpm-lock.yaml", "", {FILE: "packages: [a]\n"})
    added = client.with_override(files, "mid", "leaf", "1.1.0")
    in_workspace = "mid>leaf: 1.1.0" in added.text(FILE)
    assert in_workspace == (wanted == "pnpm@11.2.0") == (added.manifests == texts)
    alone = Files(".", texts, "pnpm-lock.yaml", "")
    if in_workspace:
        with pytest.raises(RecipeError, check=OfKind("no_workspace_file")):
            client.with_override(alone, "mid", "leaf", "1.1.0")
    else:
        client.with_override(alone, "mid", "leaf", "1.1.0")
