"""What npm projects ask for, loaded beside the base commit's: real npm, node and bubblewrap, over releases
made up for it."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_plugins.npm.gates import all_gates
from fallback_plugins.npm.gates.all_gates import ImportsGate
from fallback_tier.gate_ports import GateVerdict
from tests import hanging
from tests.choice import a_choice
from tests.fakes.repository import write
from tests.integration import gate_setup
from tests.integration.gate_setup import advisory, clients_in, needs_sandbox, patched
from tests.registry import Registry, Universe, serve

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not on PATH"),
    pytest.mark.xdist_group("gates-imports-npm"),
]

PASSED, SKIPPED, FAILED = GateStatus.PASSED, GateStatus.SKIPPED, GateStatus.FAILED
UNDECIDED = GateStatus.UNDECIDED
SCRIPTS = {"scripts": {"install": "node-gyp rebuild"}}
MODULE = {"type": "module"}


def shop(universe: Universe, version: str, text: str, **facts: Any) -> Universe:
    needs = facts.pop("needs", {"tills": "^1.0.0"})
    return universe.npm("shop", version, needs, files={"index.js": text}, manifest=facts)


def universe() -> Universe:
    made = Universe()
    texts = {
        "1.0.0": "require('tills').old();\n",
        "1.0.1": "exports.open = true;\n",
        "2.0.0": "require('tills').gone();\n",
        # Never loads here; with each release for another reason, or for the same.
        "3.0.0": "throw new Error('needs libtill 1.4');\n",
        "3.0.1": "\n\nthrow new Error('needs libtill 1.4');\n",
        "3.0.2": "throw new Error('needs libtill 2.0');\n",
        "3.0.3": "require('nowhere');\n",
        "3.0.4": "const {;\n",
        "4.0.0": "window.till = 1;\n",
        "4.0.1": "document.till = 1;\n",
        "5.0.0": "require('./build/till.node');\n",
        "5.0.1": "throw new Error('Could not locate the bindings file.');\n",
        "7.0.0": "process.exit(0);\n",
        "8.0.0": "setInterval(() => {}, 1000);\n",
        "9.0.0": hanging.IN_NODE,
    }
    for version, text in texts.items():
        shop(made, version, text)
    shop(made, "5.1.0", "throw new Error('not made yet');\n", **SCRIPTS)
    shop(made, "5.1.1", "throw new Error('nothing is made');\n", **SCRIPTS)
    # Newer releases of node can require() what does not say whom it is for.
    shop(made, "6.0.0", "export const open = true;\n", exports={"import": "./index.js"}, **MODULE)
    both = {"import": "./open.mjs", "require": "./index.js"}
    texts = {"open.mjs": "export const open = true;\n", "index.js": "throw new Error('closed');\n"}
    made.npm("shop", "6.1.0", files=texts, manifest={"exports": both})
    made.npm("tills", "1.0.0", files={"index.js": "exports.old = () => 1;\n"})
    made.npm("tills", "0.9.0", files={"index.js": ""})
    made.npm("plain", "1.0.0").npm("plain", "1.0.1")
    made.npm("@types/shop", "1.0.0")
    return made


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with serve(universe()) as registry:
        yield registry


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Most tests begin with the same project: it is installed once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _sandbox(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_sandbox()
    monkeypatch.setattr(gate_setup, "CACHE", cache)


def manifest(asked: str, **facts: Any) -> str:
    """Of a project that asks for these: ``shop@1.0.0 plain@1.0.0``."""
    dependencies = dict(one.rsplit("@", 1) for one in asked.split())
    return json.dumps({"name": "app", "version": "1.0.0", "dependencies": dependencies} | facts)


def judged(
    place: Path,
    registry: Registry,
    files: Mapping[str, str],
    change: Mapping[str, str],
    **with_: Any,
) -> GateVerdict:
    with patched(place, files, change, about=advisory("shop"), **with_) as case:
        clients = clients_in(os.environ | registry.environ)
        return ImportsGate().judge(case.with_(clients=clients).context)


def moved(
    place: Path,
    registry: Registry,
    before: str,
    after: str,
    /,
    more: Mapping[str, str] = {},
    **facts: Any,
) -> GateVerdict:
    one, other = ({"package.json": manifest(asked, **facts)} for asked in (before, after))
    return judged(place, registry, one | dict(more), other)


def test_a_dependency_that_no_longer_loads_fails(tmp_path: Path, registry: Registry) -> None:
    verdict = moved(tmp_path, registry, "shop@1.0.0", "shop@2.0.0")
    assert verdict.failure_kind is FailureKind.BUILD_FAILED
    assert verdict.detail == "import of shop fails"
    assert "cannot import shop: TypeError: require(...).gone is not a function" in verdict.log
    assert "at Object.<anonymous> (node_modules/shop/index.js:1:" in verdict.log


def test_a_dependency_that_stays_and_needs_what_moved_fails(
    tmp_path: Path, registry: Registry
) -> None:
    forced = {"overrides": {"tills": "0.9.0"}}
    change = {"package.json": manifest("shop@1.0.0", **forced)}
    verdict = judged(tmp_path, registry, {"package.json": manifest("shop@1.0.0")}, change)
    assert verdict.failure_kind is FailureKind.BUILD_FAILED
    assert "require(...).old is not a function" in verdict.log


def test_what_loads_as_before_passes(tmp_path: Path, registry: Registry) -> None:
    types = {"devDependencies": {"@types/shop": "1.0.0", "plain": "1.0.0"}}
    verdict = moved(tmp_path, registry, "shop@1.0.0", "shop@1.0.1", **types)
    assert (verdict.status, verdict.detail) == (PASSED, "import of shop, plain: in order")


@pytest.mark.parametrize(
    ("before", "after", "status"),
    a_choice(
        [
            ("3.0.0", "3.0.1", PASSED),
            # What it needs is part of the reason.
            ("3.0.0", "3.0.2", FAILED),
            ("3.0.0", "3.0.3", FAILED),
            ("3.0.0", "3.0.4", FAILED),
            # For a browser, or not built: it can't be told, however it says so. Nor is that an excuse.
            ("4.0.0", "4.0.1", PASSED),
            ("1.0.0", "4.0.0", FAILED),
            ("5.0.0", "5.0.1", PASSED),
            ("1.0.0", "5.0.0", FAILED),
            ("5.1.0", "5.1.1", PASSED),
            ("5.1.0", "3.0.0", FAILED),
            ("1.0.0", "7.0.0", FAILED),
            # What goes on behind it is no matter of loading it.
            ("1.0.0", "8.0.0", PASSED),
        ],
        step=2,
    ),
)
def test_what_failed_before_is_not_the_patchs_where_it_says_the_same(
    tmp_path: Path, registry: Registry, before: str, after: str, status: GateStatus
) -> None:
    verdict = moved(tmp_path, registry, f"shop@{before}", f"shop@{after}")
    assert verdict.status is status, verdict


@pytest.mark.parametrize(
    ("more", "facts", "status"),
    [
        ({"app.js": "const { open } = require('shop');\n"}, {}, FAILED),
        ({"app.ts": "import { open } from 'shop';\n"}, {}, PASSED),
        (
            {
                "app.ts": "import { open } from 'shop';\n",
                "tsconfig.json": '{ "compilerOptions": { "module": "CommonJS" } } // to require()\n',
            },
            {},
            FAILED,
        ),
        ({"app.js": "import { open } from 'shop';\n"}, MODULE, PASSED),
    ],
    ids=["required", "bundled", "compiled", "a module itself"],
)
def test_what_became_an_es_module_fails_where_it_is_required(
    tmp_path: Path,
    registry: Registry,
    more: Mapping[str, str],
    facts: dict[str, Any],
    status: GateStatus,
) -> None:
    verdict = moved(tmp_path, registry, "shop@1.0.0", "shop@6.0.0", more=more, **facts)
    assert verdict.status is status, verdict
    if status is FAILED:
        assert "cannot import shop: it is an ES module" in verdict.log


@pytest.mark.parametrize(("facts", "status"), [({}, FAILED), (MODULE, PASSED)])
def test_a_dependency_is_loaded_as_the_project_does(
    tmp_path: Path, registry: Registry, facts: dict[str, Any], status: GateStatus
) -> None:
    verdict = moved(tmp_path, registry, "shop@1.0.0", "shop@6.1.0", **facts)
    assert verdict.status is status, verdict


def test_members_are_asked_from_their_own_folders(tmp_path: Path, registry: Registry) -> None:
    """One member asks for the other, which has to be built first, in both trees."""

    def tree(version: str) -> dict[str, str]:
        texts = {
            "package.json": json.dumps({"name": "root", "workspaces": ["packages/*"]}),
            "packages/a/package.json": manifest(f"shop@{version}", name="a"),
            "packages/b/package.json": manifest("shop@2.0.0 a@*", name="b"),
        }
        place = tmp_path / version
        write(place, texts)
        options = ["--package-lock-only", "--ignore-scripts", "--no-audit"]
        clients = clients_in(os.environ | registry.environ)
        done = clients.run("npm", ["install", *options], cwd=place, timeout_s=120)
        assert done.ok, done.output
        return texts | {"package-lock.json": (place / "package-lock.json").read_text()}

    files, after = tree("1.0.0"), tree("3.0.0")
    change = {path: text for path, text in after.items() if text != files[path]}
    verdict = judged(tmp_path, registry, files, change)
    assert verdict.failure_kind is FailureKind.BUILD_FAILED
    assert verdict.log == "cannot import shop (in packages/a): Error: needs libtill 1.4"


def test_a_patch_that_installs_nothing_else_asks_for_nothing(
    tmp_path: Path, registry: Registry
) -> None:
    files = {"package.json": manifest("shop@2.0.0"), "app.js": "1;\n"}
    verdict = judged(tmp_path, registry, files, {"app.js": "2;\n"})
    assert (verdict.status, verdict.detail) == (SKIPPED, "no dependency of package.json moves")


def test_the_advisorys_package_is_asked_for_first_and_the_rest_within_bounds(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(all_gates, "MAX_DEPENDENCIES", 1)
    verdict = moved(tmp_path, registry, "plain@1.0.0 shop@1.0.0", "plain@1.0.0 shop@1.0.1")
    assert verdict.detail == "import of shop: in order"


def test_what_there_is_no_time_for_is_named(tmp_path: Path, registry: Registry) -> None:
    files = {"package.json": manifest("plain@1.0.0 tills@1.0.0")}
    change = {"package.json": manifest("plain@1.0.1 tills@1.0.0 shop@9.0.0")}
    with patched(tmp_path, files, change, about=advisory("plain"), timeout_s=12) as case:
        clients = clients_in(os.environ | registry.environ)
        verdict = ImportsGate().judge(case.with_(clients=clients).context)
    assert verdict.status is PASSED
    assert verdict.detail.endswith("in order; no time was left to import shop")


@pytest.mark.parametrize(("now", "status"), [("2.0.0", UNDECIDED), ("1.0.1", PASSED)])
def test_a_failure_beside_another_step_of_the_ladder_is_undecided(
    tmp_path: Path, registry: Registry, now: str, status: GateStatus
) -> None:
    """At the base commit a tool that no registry has stops all of it but what it runs with."""
    files = {"package.json": manifest("shop@1.0.0", devDependencies={"no-such-tool": "1.0.0"})}
    verdict = judged(tmp_path, registry, files, {"package.json": manifest(f"shop@{now}")})
    assert verdict.status is status, verdict.detail
    message = (
        "here everything, npm install; at the base commit in part, npm install of what it runs with"
    )
    assert (message in verdict.detail) is (status is UNDECIDED)
