"""npm's files as text: locks of versions 1 to 3, specs, and edits that touch one span."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_plugins.npm.client import Files
from fallback_plugins.npm.locks.lockfile import (
    installed_versions,
    lockfile_version,
)
from fallback_plugins.npm.manifests.declaring import declarations
from fallback_plugins.npm.manifests.manifest import (
    SECTIONS,
    Declared,
    declared,
    parse_manifest,
    with_value,
)
from fallback_plugins.npm.manifests.pnpm_workspace import with_entry, with_scalar
from fallback_plugins.npm.manifests.specs import admits, floor, foreign, raised
from fallback_plugins.npm.rules import mentions
from fallback_tier.errors import RecipeError
from tests.kinds import OfKind

TREE: dict[str, Any] = {
    "a": {
        "version": "1.0.0",
        "requires": {"b": "^1.0.0"},
        "dependencies": {"b": {"version": "1.5.0"}},
    },
    "b": {"version": "2.0.0"},
    "c": {"version": "npm:b@3.0.0"},
    "d": {"version": "git+ssh://host/b.git#abc"},
    "l": {"version": "file:../l"},
}
FLAT: dict[str, Any] = {
    "": {"name": "root", "version": "9.9.9", "dependencies": {"b": "^2.0.0"}},
    "node_modules/a": {"version": "1.0.0", "dependencies": {"b": "^1.0.0"}},
    "node_modules/a/node_modules/b": {"version": "1.5.0"},
    "node_modules/b": {"version": "2.0.0"},
    "node_modules/c": {"name": "b", "version": "3.0.0"},
    "node_modules/@s/b": {"version": "4.0.0"},
    "packages/b": {"name": "b", "version": "5.0.0"},
    "node_modules/l": {"resolved": "packages/b", "link": True},
}
PLACES = {
    "node_modules/a/node_modules/b": "1.5.0",
    "node_modules/b": "2.0.0",
    "node_modules/c": "3.0.0",
}


def lock(version: int, **fields: Any) -> str:
    return json.dumps({"name": "root", "lockfileVersion": version, **fields})


def test_version_1() -> None:
    text = lock(1, dependencies=TREE)
    assert installed_versions(text, "b") == PLACES
    assert installed_versions(text, "d") == {"node_modules/d": "git+ssh://host/b.git#abc"}
    assert installed_versions(text, "l") == {}


@pytest.mark.parametrize("version", [2, 3])
def test_versions_2_and_3(version: int) -> None:
    text = lock(version, packages=FLAT)
    assert installed_versions(text, "b") == PLACES | {"packages/b": "5.0.0"}
    assert installed_versions(text, "@s/b") == {"node_modules/@s/b": "4.0.0"}
    assert installed_versions(text, "root") == {}


def test_version_2_misses_nothing_that_an_older_npm_installs() -> None:
    text = lock(2, packages=FLAT, dependencies={"b": {"version": "2.0.0"}})
    assert "dependencies:node_modules/b" not in installed_versions(text, "b")
    text = lock(2, packages=FLAT, dependencies={"b": {"version": "0.1.0"}})
    assert installed_versions(text, "b")["dependencies:node_modules/b"] == "0.1.0"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "[" * 100_000,
        '{"lockfileVersion": 4}',
        '{"lockfileVersion": true}',
        '{"lockfileVersion": "1"}',
        "{}",
    ],
)
def test_what_isnt_a_known_lock_is_refused(text: str) -> None:
    with pytest.raises(RecipeError, check=OfKind("lockfile_version", "unreadable")):
        lockfile_version(text)


@given(
    st.recursive(st.none() | st.text() | st.integers(), st.lists)
    | st.dictionaries(
        st.sampled_from(["packages", "dependencies", "lockfileVersion", "version", "requires"]),
        st.recursive(
            st.none() | st.text() | st.integers(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("version"), inner),
            max_leaves=8,
        ),
    )
)
def test_any_json_is_read_or_refused(value: Any) -> None:
    try:
        installed_versions(json.dumps(value), "left")
    except RecipeError:
        assert not isinstance(value, dict)


@pytest.mark.parametrize(
    ("spec", "start", "new"),
    [
        ("1.2.3", "1.2.3", "2.0.1"),
        ("=1.2.3", "1.2.3", "=2.0.1"),
        ("v1.2.3", "1.2.3", "v2.0.1"),
        ("^1.2.3", "1.2.3", "^2.0.1"),
        ("~1.2.3-rc.1", "1.2.3-rc.1", "~2.0.1"),
        (">= 1.2", "1.2", ">= 2.0.1"),
        ("^1", "1", "^2.0.1"),
        ("1.2", None, "~2.0.1"),
        ("1.x", None, "^2.0.1"),
        ("*", None, None),
        ("", None, None),
        ("latest", None, None),
        ("<2", None, None),
        (">=1.0.0 <2.0.0", None, None),
        ("1.0.0 || 2.0.0", None, None),
        ("npm:b@1.2.3", "1.2.3", "npm:b@2.0.1"),
        ("npm:@s/b@^1.2.3", "1.2.3", "npm:@s/b@^2.0.1"),
        ("npm:b", None, None),
    ],
)
def test_floor_and_raised(spec: str, start: str | None, new: str | None) -> None:
    assert floor(spec) == start
    assert raised(spec, "2.0.1") == new


@pytest.mark.parametrize(
    ("spec", "version", "expected"),
    [
        ("^1.2.0", "1.9.0", True),
        ("^1.2.0", "2.0.0", False),
        ("^0.2.0", "0.3.0", False),
        ("~1.2.0", "1.2.9", True),
        ("1.2.x", "1.2.7", True),
        (">= 1.0.0  < 2.0.0", "1.5.0", True),
        ("1.0.0 - 2.0.0", "2.0.0", True),
        ("1 || 3", "3.1.0", True),
        ("*", "7.0.0", True),
        ("", "7.0.0", True),
        ("latest", "7.0.0", False),
        ("^1.0.0", "1.1.0-rc.1", False),
        ("^1.0.0", "nonsense", False),
    ],
)
def test_admits(spec: str, version: str, expected: bool) -> None:
    assert admits(spec, version) is expected


@pytest.mark.parametrize(
    "spec",
    [
        "npm:b@git+https://h/x.git",
        "git+https://h/x.git",
        "git://h/x",
        "user/repo",
        "file:../x",
        "https://h/x.tgz",
        "workspace:*",
        "link:../x",
        "catalog:",
    ],
)
def test_foreign(spec: str) -> None:
    assert foreign(spec)
    assert foreign("^1.2.3") is None


def test_edit_touches_one_span() -> None:
    text = (
        '\ufeff{\r\n\t"name" : "b", "version": "^1.0.0",\r\n'
        '\t"config": {"b": "^1.0.0"},\r\n\t"dependencies": {"a": "1",   "b"  :"^1.0.0"}\r\n}'
    )
    new = with_value("package.json", text, ("dependencies", "b"), "^1.2.6")
    assert new == text.replace('"b"  :"^1.0.0"', '"b"  :"^1.2.6"')


names = st.sampled_from(["a", "b", "@s/b", "b.c", 'q"q', "name", "dependencies"])
specs = st.sampled_from(["1.0.0", "^1.0.0", "~2.1", "*", "a\\b", "x\ty"])
sections = st.dictionaries(st.sampled_from(SECTIONS), st.dictionaries(names, specs))


@given(sections, names, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_edits_keep_every_other_byte(
    content: dict[str, dict[str, str]], name: str, indent: Any, crlf: bool
) -> None:
    text = json.dumps({"name": "b", "b": "1.0.0", **content, "config": content}, indent=indent)
    text = text.replace("\n", "\r\n") if crlf else text
    for place in declared(parse_manifest("package.json", text), name):
        new = with_value("package.json", text, (place.section, place.key), "^9.9.9")
        wanted = json.loads(text)
        wanted[place.section][place.key] = "^9.9.9"
        assert json.loads(new) == wanted
        start = next(at for at, (a, b) in enumerate(zip(text, new, strict=False)) if a != b)
        tail = text[start:].split('"', 1)[1]
        assert new.endswith(tail)


def test_aliases_are_found_by_what_they_stand_for() -> None:
    manifest = {"dependencies": {"x": "npm:b@^1.0.0", "y": "npm:bb@1", "b": 7}}
    assert declared(manifest, "b") == (Declared("dependencies", "x", "npm:b@^1.0.0"),)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("const m = require('minimist')", True),
        ('import m from "minimist"', True),
        ("import 'minimist/sub.js'", True),
        ("export * from `minimist`", True),
        ("await import('minimist')", True),
        ("require.resolve('minimist')", True),
        ("import m from 'minimist-extra'", False),
        ("import m from './minimist'", False),
        ("// minimist is nice", False),
    ],
)
def test_mentions(line: str, expected: bool) -> None:
    assert mentions("minimist", "src/a.mjs", line) is expected
    assert not mentions("minimist", "README.md", line)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("catalog:\n  left: 1.0.0  # why\n", "catalog:\n  left: 1.1.0  # why\n"),
        ("catalog:\r\n  'left' : '1.0.0'\r\n", "catalog:\r\n  'left' : '1.1.0'\r\n"),
        (
            '\ufeffcatalog: {right: 1.0.0, left: "1.0.0"}',
            '\ufeffcatalog: {right: 1.0.0, left: "1.1.0"}',
        ),
        ("left: 1.0.0\ncatalog:\n    left: 1.0.0", "left: 1.0.0\ncatalog:\n    left: 1.1.0"),
    ],
)
def test_an_edit_of_a_catalog_touches_one_scalar(before: str, after: str) -> None:
    assert with_scalar(before, ("catalog", "left"), "1.1.0") == after


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("catalog:\n  left: >-\n    1.0.0\n", "1.1.0"),
        ("catalog:\n  left: 1.0.0\n", ">=1.1.0"),  # a block scalar, without quotes
        ("catalog:\n  left: 1.0.0\n", "1"),  # a number
        ("catalog:\n  left: 1.0.0\n  left: 1.0.0\n", "1.1.0"),
        ("catalog:\n  left: &a 1.0.0\n  right: *a\n", "1.1.0"),
        ("catalog: [left]\n", "1.1.0"),
    ],
)
def test_a_catalog_that_cannot_be_edited_so_is_refused(text: str, value: str) -> None:
    with pytest.raises(RecipeError, match=r"pnpm-workspace\.yaml"):
        with_scalar(text, ("catalog", "left"), value)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("packages: [a]\n", "packages: [a]\noverrides:\n  a>left: 1.1.0\n"),
        ("packages: [a]", "packages: [a]\noverrides:\n  a>left: 1.1.0\n"),
        (
            "overrides: # why\n\n    # held\n    b: '1'\npackages: [a]\n",
            "overrides: # why\n\n    a>left: 1.1.0\n    # held\n    b: '1'\npackages: [a]\n",
        ),
        ("overrides:\r\n  b: '1'\r\n", "overrides:\r\n  a>left: 1.1.0\r\n  b: '1'\r\n"),
        ("overrides: {b: '1'}\n", "overrides: {a>left: 1.1.0, b: '1'}\n"),
        ("overrides: {}\n", "overrides: {a>left: 1.1.0, }\n"),
        ("overrides:\n  'a>left': '1'\n", "overrides:\n  'a>left': '1.1.0'\n"),
    ],
)
def test_an_override_is_added_to_the_workspaces_without_moving_a_byte(
    before: str, after: str
) -> None:
    assert with_entry(before, "overrides", "a>left", "1.1.0") == after


@pytest.mark.parametrize("text", ["overrides: [left]\n", "overrides: &a {b: '1'}\nmore: *a\n"])
def test_a_place_for_overrides_that_takes_none_is_refused(text: str) -> None:
    with pytest.raises(RecipeError, match=r"pnpm-workspace\.yaml"):
        with_entry(text, "overrides", "a>left", "1.1.0")


def test_a_catalogs_entry_is_in_the_place_of_those_that_refer_to_it() -> None:
    texts = {
        "package.json": {"peerDependencies": {"left": "catalog:", "right": "catalog:"}},
        "a/package.json": {"dependencies": {"left": "catalog:default", "mine": "catalog:old"}},
        "b/package.json": {"dependencies": {"left": "catalog:gone", "other": "^1.0.0"}},
    }
    workspace = (
        "catalogs:\n  default: {left: ^1.0.0, right: ^2.0.0}\n  old: {mine: 'npm:left@1.0.0'}\n"
    )
    files = Files(
        ".",
        {path: json.dumps(text) for path, text in texts.items()},
        settings={"pnpm-workspace.yaml": workspace},
    )
    assert set(declarations(files, "left")) == {
        ("pnpm-workspace.yaml", Declared("catalogs.default", "left", "^1.0.0")),
        ("pnpm-workspace.yaml", Declared("catalogs.old", "mine", "npm:left@1.0.0")),
        ("b/package.json", Declared("dependencies", "left", "catalog:gone")),
    }
    # What a package's users install is its own word: no entry is raised for it.
    assert declarations(files, "right") == (
        ("package.json", Declared("peerDependencies", "right", "^2.0.0")),
    )
