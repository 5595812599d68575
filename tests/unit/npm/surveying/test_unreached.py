"""Committed copies that no version change reaches: vendored code, trees, bundles that users run."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.npm import build_ecosystem
from fallback_plugins.npm.surveying.survey import survey
from fallback_tier.outcome import NotApplicable
from tests.registry import Universe
from tests.unit.npm.world import at, bad, manifest, project, world
from tests.unit.shared.recipes import FakeClients, repository

LEAF = bad("leaf", ("0", "1.2.0"))
OWN = json.dumps({"name": "leaf", "version": "1.0.0"})

COPIES = {
    "a committed tree": (
        "node_modules/leaf/package.json",
        OWN,
        "node_modules/leaf holds leaf 1.0.0",
    ),
    "an alias in it": ("node_modules/l/package.json", OWN, "node_modules/l holds leaf 1.0.0"),
    "a vendored package": ("src/vendor/leaf/package.json", OWN, "src/vendor/leaf holds leaf 1.0.0"),
    "bower's": ("bower_components/leaf/.bower.json", OWN, "bower_components/leaf holds leaf 1.0.0"),
    "a name": ("public/js/leaf-1.0.0.min.js", "x", "public/js/leaf-1.0.0.min.js holds leaf 1.0.0"),
    "a comment": (
        "static/leaf.min.js",
        "/*! leaf.js v1.0.0 */",
        "static/leaf.min.js holds leaf 1.0.0",
    ),
}
BUNDLES = {
    "webpack": ("dist/index.js", '/***/ "./node_modules/leaf/index.js":\n'),
    "esbuild": ("public/app.js", "// node_modules/leaf/index.js\n"),
}
SAFE = {
    "a fixed one": ("vendor/leaf/package.json", OWN.replace("1.0.0", "1.2.0")),
    "another's": ("vendor/leaf/package.json", OWN.replace("leaf", "leafy")),
    "a sample": ("tests/leaf-1.0.0.js", "x"),
    "a name without a version": ("static/leaf.js", "export {};"),
    "another name": ("static/leaf-tree-1.0.0.js", "x"),
}


def reason(root: Path, files: Mapping[str, str]) -> tuple[RefusalReason, str]:
    selection = build_ecosystem(FakeClients()).select(LEAF, repository(root, files))
    assert isinstance(selection, NotApplicable)
    return selection.reason, selection.sentence


@pytest.mark.parametrize("kind", COPIES)
def test_a_copy_alone_is_refused_by_its_place(tmp_path: Path, kind: str) -> None:
    path, text, message = COPIES[kind]
    found, sentence = reason(tmp_path, {"package.json": manifest(), path: text})
    assert found is RefusalReason.RECIPE_UNSUPPORTED
    assert message in sentence


@pytest.mark.parametrize("kind", SAFE)
def test_what_is_no_affected_copy_is_none(tmp_path: Path, kind: str) -> None:
    path, text = SAFE[kind]
    found, _ = reason(tmp_path, {"package.json": manifest(), path: text})
    assert found is RefusalReason.NOT_AFFECTED


@pytest.mark.parametrize("kind", [*COPIES, *BUNDLES])
def test_a_fix_names_what_it_does_not_reach(tmp_path: Path, kind: str) -> None:
    path, text, *message = (COPIES | BUNDLES)[kind]
    files = {**project({"leaf": "^1.0.0"}, {"leaf": at("1.0.0")}), path: text}
    with world(Universe().npm("leaf", "1.0.0").npm("leaf", "1.2.0"), tmp_path) as here:
        result = here.fix(LEAF, files)
    expected = message[0] if message else f"{path} holds code of leaf"
    assert any(note.startswith(expected) for note in result.notes), result.notes


ACTION = "name: x\nruns:\n  using: node20\n  main: 'dist/index.js'\n"


@pytest.mark.parametrize(
    ("built", "more", "dev", "unread"),
    [
        ("/***/ './node_modules/leaf/index.js'\n", {}, False, True),
        ("x" * 6_000, {}, False, True),
        ("short", {"dist/licenses.txt": "other\nMIT\n\nleaf\nMIT\n"}, False, True),
        ("short", {"dist/licenses.txt": "other\nMIT\n\nleafy\nMIT\n"}, False, False),
        ("x" * 6_000, {}, True, False),
        ("require('./source')", {}, False, False),
    ],
    ids=["named", "minified", "licenses", "others' licenses", "for development", "its source"],
)
def test_a_bundle_that_an_action_runs_makes_a_fix_unproved(
    tmp_path: Path, built: str, more: dict[str, str], dev: bool, unread: bool
) -> None:
    files = project({"leaf": "^1.0.0"}, {"leaf": {**at("1.2.0"), **({"dev": True} if dev else {})}})
    files |= {"action.yml": ACTION, "dist/index.js": built, **more}
    (found,) = survey(repository(tmp_path, files), "leaf")
    assert bool(found.unread) is unread
    if unread:
        assert "users run dist/index.js" in (found.unread or "")
