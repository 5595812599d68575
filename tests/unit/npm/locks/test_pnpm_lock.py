"""pnpm-lock.yaml in its three formats as one tree, and what is refused by name."""

import difflib
import json
import re
from collections.abc import Callable

import pytest

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.pnpm import (
    PnpmClient,
    carried_manifest,
    carried_options,
    carried_text,
    check_carried,
    forces_of,
)
from fallback_plugins.npm.locks.pnpm_lock import (
    in_form_of,
    parse_pnpm_lock,
    parse_yaml,
    without,
)
from fallback_plugins.npm.manifests.pnpm_workspace import settings
from fallback_plugins.shared.tree import DependencyTree
from fallback_tier.errors import RecipeError
from tests.kinds import OfKind
from tests.unit.npm.clients.test_yarn_client import Clients

FIVE = """lockfileVersion: 5.4

importers:

  .:
    specifiers:
      al: npm:leaf@^1.0.0
      one: workspace:*
      plug: ^1.0.0
    dependencies:
      al: /leaf/1.10.0
      one: link:one
      plug: 1.0.0_host@2.0.0

packages:

  /@s/opt/1.0.0:
    resolution: {integrity: sha512-AA==}
    optional: true

  /host/2.0.0:
    resolution: {integrity: sha512-AA==}

  /leaf/1.10.0:
    resolution: {integrity: sha512-AA==}

  /plug/1.0.0_host@2.0.0:
    resolution: {integrity: sha512-AA==}
    peerDependencies:
      host: '>=1'
    dependencies:
      host: 2.0.0
      leaf: 1.10.0
    optionalDependencies:
      '@s/opt': 1.0.0

  github.com/user/repo/0123456789:
    resolution: {tarball: https://codeload.test/user/repo/tar.gz/0123456789}
    name: from-git
    version: 3.0.0
"""

SIX = """lockfileVersion: '6.0'

importers:

  .:
    dependencies:
      al:
        specifier: npm:leaf@^1.0.0
        version: /leaf@1.10.0
      one:
        specifier: workspace:*
        version: link:one
      plug:
        specifier: ^1.0.0
        version: 1.0.0(host@2.0.0)

packages:

  /@s/opt@1.0.0:
    resolution: {integrity: sha512-AA==}

  /host@2.0.0:
    resolution: {integrity: sha512-AA==}

  /leaf@1.10.0:
    resolution: {integrity: sha512-AA==}

  /plug@1.0.0(host@2.0.0):
    resolution: {integrity: sha512-AA==}
    peerDependencies:
      host: '>=1'
    dependencies:
      host: 2.0.0
      leaf: 1.10.0
    optionalDependencies:
      '@s/opt': 1.0.0

  github.com/user/repo/0123456789:
    resolution: {tarball: https://codeload.test/user/repo/tar.gz/0123456789}
    name: from-git
    version: 3.0.0
"""

NINE = """lockfileVersion: '9.0'

importers:

  .:
    dependencies:
      al:
        specifier: npm:leaf@^1.0.0
        version: leaf@1.10.0
      one:
        specifier: workspace:*
        version: link:one
      plug:
        specifier: ^1.0.0
        version: 1.0.0(host@2.0.0)

packages:

  '@s/opt@1.0.0':
    resolution: {integrity: sha512-AA==}

  host@2.0.0:
    resolution: {integrity: sha512-AA==}

  leaf@1.10.0:
    resolution: {integrity: sha512-AA==}

  plug@1.0.0:
    resolution: {integrity: sha512-AA==}
    peerDependencies:
      host: '>=1'

  from-git@https://codeload.test/user/repo/tar.gz/0123456789:
    resolution: {tarball: https://codeload.test/user/repo/tar.gz/0123456789}
    version: 3.0.0

snapshots:

  '@s/opt@1.0.0':
    optional: true

  host@2.0.0: {}

  leaf@1.10.0: {}

  plug@1.0.0(host@2.0.0):
    dependencies:
      host: 2.0.0
      leaf: 1.10.0
    optionalDependencies:
      '@s/opt': 1.0.0

  from-git@https://codeload.test/user/repo/tar.gz/0123456789: {}
"""

ROOT = {
    "name": "r",
    "version": "1.0.0",
    "dependencies": {"al": "npm:leaf@^1.0.0", "one": "workspace:*", "plug": "^1.0.1"},
}

FORMATS = pytest.mark.parametrize("text", [FIVE, SIX, NINE], ids=["5.4", "6.0", "9.0"])


def files(text: str, **more: str) -> Files:
    return Files("sub", {"sub/package.json": json.dumps(ROOT)}, "sub/pnpm-lock.yaml", text, more)


def tree_of(text: str) -> DependencyTree:
    return PnpmClient(Clients()).tree(files(text))


@FORMATS
def test_every_format_tells_the_same_tree(text: str) -> None:
    tree = tree_of(text)
    held = sorted((node.name, node.version) for node in tree.nodes.values())
    assert held == [
        ("@s/opt", "1.0.0"),
        ("from-git", "3.0.0"),
        ("host", "2.0.0"),
        ("leaf", "1.10.0"),  # a YAML number would be 1.1
        ("plug", "1.0.0"),
    ]
    (leaf,) = tree.of("leaf")
    ways = [[node.label for node in dependency_path] for dependency_path in tree.paths_to(leaf.key)]
    assert ways == [["r 1.0.0", "leaf 1.10.0"], ["r 1.0.0", "plug 1.0.0", "leaf 1.10.0"]]


@FORMATS
def test_asks_say_what_is_a_peer_what_is_optional_and_what_is_no_package(text: str) -> None:
    tree = tree_of(text)
    (plug,) = tree.of("plug")
    asks = {ask.name: (ask.spec, ask.peer, ask.optional) for ask in plug.asks}
    assert asks == {
        "host": (">=1", True, False),
        "leaf": ("", False, False),
        "@s/opt": ("", False, True),
    }
    (root,) = tree.roots
    assert root.key == "sub/package.json"
    reported = {ask.name: (ask.spec, ask.to is None) for ask in root.asks}
    assert reported == {
        "al": ("npm:leaf@^1.0.0", False),
        "one": ("workspace:*", True),
        "plug": ("^1.0.1", False),  # the manifest's word, not the lock's
    }


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("lockfileVersion: 5.3\n", "lockfile_version", " 5.3,"),
        ("lockfileVersion: '10.0'\n", "lockfile_version", " 10.0,"),
        ("- a\n", "not_a_mapping", "pnpm-lock"),
        ("a: [\n", "not_yaml", "pnpm-lock"),
        ("lockfileVersion: '9.0'\npnpmfileChecksum: abc\n", "pnpmfile", r"\.pnpmfile\.cjs"),
    ],
)
def test_a_lock_that_is_not_read_is_refused_by_name(text: str, kind: str, value: str) -> None:
    with pytest.raises(RecipeError, check=OfKind(kind), match=value) as refused:
        parse_pnpm_lock(text)
    assert refused.value.reason is RefusalReason.RECIPE_UNSUPPORTED


def test_settings_that_decide_versions_are_carried_over_as_data() -> None:
    """pnpm 10 has them in its workspace file; the pnpm that resolves may read them elsewhere."""
    text = (
        "packages:\n  - one\ncatalog:\n  a: ^1.10\nonlyBuiltDependencies:\n  - x\n"
        "autoInstallPeers: false\nresolutionMode: time-based\nnodeLinker: hoisted\n"
        "pnpmfile: evil.cjs\nnodeOptions: --require=./evil.cjs\ndedupePeerDependents: --evil=1\n"
        "overrides:\n  a: 1.0.0\n  b: 1.0.0\n"
    )
    content = settings(files(NINE, **{"sub/pnpm-workspace.yaml": text}))
    check_carried(content)
    kept = {"pnpm-workspace.yaml": "catalog:\n  a: ^1.10\npackages:\n- one\n"}
    assert carried_text(content) == kept
    assert carried_options(content) == [
        "--config.auto-install-peers=false",
        "--config.resolution-mode=time-based",
    ]
    root = json.dumps({"name": "r", "pnpm": {"overrides": {"a": "2.0.0"}}})
    moved = json.loads(carried_manifest(content, root))
    assert moved == {"name": "r", "pnpm": {"overrides": {"a": "2.0.0", "b": "1.0.0"}}}
    assert carried_manifest({}, root) == root
    with pytest.raises(RecipeError, check=OfKind("outside")):
        carried_manifest({"overrides": {"a": "link:/etc"}}, root)


@pytest.mark.parametrize("line", ["namedRegistries:\n  a: https://h", "registry: 'https://h'"])
def test_a_setting_that_decides_what_is_locked_and_is_not_carried_over_is_named(line: str) -> None:
    content = settings(files(NINE, **{"sub/pnpm-workspace.yaml": line + "\n"}))
    with pytest.raises(RecipeError, match=line.partition(":")[0]):
        check_carried(content)


def test_no_wish_is_forced_upon_a_range_that_does_not_admit_it() -> None:
    wanted_versions = {("plug", "1.0.0"): "1.0.1", ("leaf", "1.10.0"): "1.11.0"}
    forces = forces_of(files(SIX), tree_of(SIX), wanted_versions)
    assert {(one.dependent, one.package, one.version) for one in forces} == {
        ("sub/package.json", "plug", "1.0.1"),
        ("sub/package.json", "leaf", "1.11.0"),  # by its alias
        ("plug", "leaf", "1.11.0"),
    }
    assert not forces_of(files(SIX), tree_of(SIX), {("plug", "1.0.0"): "2.0.0"})
    manifests = {"sub/package.json": json.dumps(ROOT)}
    for force in forces:
        force.upon(manifests, "sub/package.json")
    made = json.loads(manifests["sub/package.json"])
    assert made["dependencies"] == {"al": "npm:leaf@1.11.0", "one": "workspace:*", "plug": "1.0.1"}
    assert made["pnpm"]["overrides"] == {"plug@1.0.0>leaf": "1.11.0"}


@FORMATS
def test_what_is_to_be_looked_up_is_gone_from_the_lock_and_nothing_else(text: str) -> None:
    stripped = tree_of(without(text, ["leaf", "from-git"]))
    assert sorted(stripped.by_name) == ["@s/opt", "from-git", "host", "plug"]
    (plug,) = stripped.of("plug")
    assert [ask.name for ask in plug.asks] == ["host", "@s/opt"]
    assert [ask.name for ask in stripped.roots[0].asks] == ["one", "plug"]


def test_overrides_are_found_by_the_package_that_they_end_with() -> None:
    overrides = {"plug@1>leaf@^1": "1.0.0", "leaf": "2.0.0", "leaf>plug": "3", "@s/leaf": "4"}
    root = {**ROOT, "pnpm": {"overrides": overrides}, "resolutions": {"a/leaf": "5.0.0"}}
    project = Files(".", {"package.json": json.dumps(root)}, "pnpm-lock.yaml", NINE)
    found = PnpmClient(Clients()).overrides(project, "leaf")
    assert [place.keys[-1] for place in found] == ["plug@1>leaf@^1", "leaf", "a/leaf"]
    (scoped,) = PnpmClient(Clients()).overrides(project, "@s/leaf")
    assert scoped.spec == "4"


def test_an_override_is_added_without_moving_a_byte() -> None:
    text = '{\n    "name": "r",\n    "pnpm": {}\n}\n'
    project = Files(".", {"package.json": text}, "pnpm-lock.yaml", NINE)
    after = PnpmClient(Clients()).with_override(project, "@s/p", "leaf", "1.11.0")
    made = after.manifests["package.json"]
    assert json.loads(made) == {"name": "r", "pnpm": {"overrides": {"@s/p>leaf": "1.11.0"}}}
    assert made.startswith('{\n    "name": "r",\n    "pnpm": {')


def _prettier(text: str) -> str:
    """As a formatter writes what pnpm wrote."""
    text = re.sub(r"\{(.+)\}", r"\n      { \1 }", text) if "{" in text else text
    return text.replace("'", '"')


def _wide(text: str) -> str:
    return re.sub(r"^ +", lambda blanks: blanks[0] * 2, text, flags=re.MULTILINE)


@pytest.mark.parametrize(
    "form",
    [
        str,
        _prettier,
        _wide,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n\n", "\n"),
        lambda text: text.rstrip(),
    ],
    ids=["pnpm", "prettier", "four spaces", "CRLF", "no blank lines", "no last line end"],
)
def test_a_lock_that_a_formatter_wrote_keeps_its_form(form: Callable[[str], str]) -> None:
    packages = "".join(
        f"\n  'p{number:02}@1.0.0':\n    resolution: {{integrity: sha512-AA==}}\n"
        for number in range(60)
    )
    old = f"lockfileVersion: '9.0'\n\nsettings:\n  autoInstallPeers: true\n\npackages:\n{packages}"
    new = old.replace("p07@1.0.0", "p07@1.1.0")
    made = in_form_of(form(old), new)
    assert parse_yaml(made) == parse_yaml(new)
    (before, after) = (text.splitlines(keepends=True) for text in (form(old), made))
    changed = [line for line in difflib.ndiff(before, after) if line[0] in "+-"]
    assert len(changed) <= 5, changed
    assert made.endswith("\n") is form(old).endswith("\n")
