"""Text edits of package.json and locks: one place changes, every other byte stays."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from semantic_version import NpmSpec, Version

from fallback_plugins.npm.clients.npm_client import as_found, without
from fallback_plugins.npm.locks.lockfile import lock_tree
from fallback_plugins.npm.manifests import specs

GIT = "git+https://github.com/o/r.git#" + "a" * 40


def v1(**entries: dict[str, Any]) -> str:
    return json.dumps({"lockfileVersion": 1, "requires": True, "dependencies": entries}, indent=2)


def test_what_npm_only_respelled_is_put_back() -> None:
    old = v1(
        b_b={"version": "1.0.0"},
        bb={"version": "1.0.0", "dev": True},
        g={"version": GIT, "from": GIT},
        leaf={"version": "1.0.0"},
    )
    new = v1(
        bb={"version": "1.0.0", "dev": True, "optional": True, "requires": {}},
        b_b={"version": "1.0.0", "devOptional": True},
        g={"version": GIT.replace("https://", "ssh://git@"), "from": "r@o/r"},
        leaf={"version": "1.2.0", "requires": {"x": "1"}},
        x={"version": "1.0.0"},
    )
    assert as_found(old, new, {}, {}) == v1(
        b_b={"version": "1.0.0"},
        bb={"version": "1.0.0", "dev": True},
        g={"version": GIT, "from": GIT},
        leaf={"version": "1.2.0", "requires": {"x": "1"}},
        x={"version": "1.0.0"},
    )


def v2(own: str, **entries: dict[str, Any]) -> str:
    packages = {"": {"name": "app", "version": own}}
    packages |= {f"node_modules/{name}": entry for name, entry in entries.items()}
    lock = {"name": "app", "version": own, "lockfileVersion": 2, "packages": packages}
    return json.dumps(lock, indent=2)


def test_what_describes_and_decides_nothing_is_as_it_was() -> None:
    """A lock that is behind its project's version, made by a client that copied no licences."""
    old = v2("1.0.1", leaf={"version": "1.0.0"})
    new = v2("1.0.2", leaf={"version": "1.2.0", "license": "MIT"})
    assert as_found(old, new, {}, {}) == v2("1.0.1", leaf={"version": "1.2.0"})


def test_licences_are_kept_where_a_lock_has_them() -> None:
    old = v2("1.0.0", leaf={"version": "1.0.0"}, other={"version": "1.0.0", "license": "MIT"})
    new = v2(
        "1.0.0",
        leaf={"version": "1.2.0", "license": "MIT"},
        other={"version": "1.0.0", "license": "MIT"},
    )
    assert as_found(old, new, {}, {}) == new


def test_another_commit_is_no_respelling() -> None:
    old = v1(g={"version": GIT, "from": GIT})
    new = v1(g={"version": GIT.replace("aaaa", "bbbb"), "from": GIT})
    assert as_found(old, new, {}, {}) == new


def test_a_package_that_is_now_installed_for_more_keeps_the_new_mark() -> None:
    old = v1(a={"version": "1.0.0", "dev": True})
    new = v1(a={"version": "1.0.0"})
    assert as_found(old, new, {}, {}) == new


def test_a_version_1_lock_is_read_as_nested_as_it_is() -> None:
    text = v1(
        a={
            "version": "1.0.0",
            "requires": {"leaf": "^1.0.0", "gone": "1"},
            "dependencies": {"leaf": {"version": "1.5.0"}},
        },
        leaf={"version": "2.0.0"},
        alias={"version": "npm:leaf@3.0.0"},
        local={"version": "file:../local"},
    )
    manifest = json.dumps({"name": "app", "dependencies": {"a": "1", "leaf": "^2"}})
    tree = lock_tree("package-lock.json", text, {"package.json": manifest}, "package.json")
    assert {node.key: node.version for node in tree.of("leaf")} == {
        "node_modules/a/node_modules/leaf": "1.5.0",
        "node_modules/leaf": "2.0.0",
        "node_modules/alias": "3.0.0",
    }
    ((dependent, ask),) = tree.dependents("node_modules/a/node_modules/leaf")
    assert (dependent.label, ask.spec) == ("a 1.0.0", "^1.0.0")
    ((root, _),) = tree.dependents("node_modules/leaf")
    assert tree.is_root(root)


def test_a_flat_lock_knows_peers_optionals_links_and_members() -> None:
    packages = {
        "": {"name": "app", "workspaces": ["w"], "devDependencies": {"p": "1"}},
        "w": {"name": "member", "version": "1.0.0", "dependencies": {"leaf": "^1"}},
        "node_modules/member": {"resolved": "w", "link": True},
        "node_modules/leaf": {"version": "1.0.0"},
        "node_modules/p": {
            "version": "1.0.0",
            "peerDependencies": {"leaf": "1", "none": "1"},
            "peerDependenciesMeta": {"none": {"optional": True}},
            "optionalDependencies": {"absent": "1"},
            "devDependencies": {"never": "1"},
        },
    }
    text = json.dumps({"lockfileVersion": 3, "packages": packages})
    tree = lock_tree("package-lock.json", text, {}, "package.json")
    assert sorted(tree.nodes) == ["node_modules/leaf", "node_modules/p"]
    assert [root.name for root in tree.roots] == ["app", "member"]
    (peer,) = tree.nodes["node_modules/p"].asks
    assert (peer.name, peer.peer, peer.to) == ("leaf", True, "node_modules/leaf")
    assert {dependent.name for dependent, _ in tree.dependents("node_modules/leaf")} == {
        "member",
        "p",
    }


@given(
    st.sampled_from(["", "^", "~"]),
    st.tuples(*[st.integers(0, 3)] * 3),
    st.tuples(*[st.integers(0, 3)] * 3),
)
def test_plain_ranges_are_read_as_the_library_reads_them(
    operator: str, floor: tuple[int, ...], wanted: tuple[int, ...]
) -> None:
    spec, version = operator + ".".join(map(str, floor)), ".".join(map(str, wanted))
    assert specs.admits(spec, version) == NpmSpec(spec).match(Version(version)), (spec, version)


@pytest.mark.parametrize(
    "lock",
    [
        {"dependencies": None},
        {"dependencies": {"a": None}},
        {"dependencies": {"a": {"dependencies": None}}, "packages": None},
        {"dependencies": [], "packages": {"node_modules/a": None}},
        {"dependencies": {"a": {"requires": None, "dependencies": {"b": None}}}},
    ],
)
def test_a_lock_with_null_in_an_objects_place_is_empty_there(lock: dict[str, Any]) -> None:
    text = json.dumps(lock, indent=2) + "\n"
    keys = ["node_modules/a/node_modules/b", "node_modules/a"]
    assert not (json.loads(without(text, keys)).get("dependencies") or {}).get("a")
    assert json.loads(as_found(text, text, {}, {})) == lock
