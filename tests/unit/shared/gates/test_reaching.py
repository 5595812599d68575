"""Which test files reach a change, by the imports of made-up repositories."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from fallback_plugins.npm.gates import testing
from fallback_plugins.npm.manifests.manifest import is_manifest
from fallback_plugins.shared.gates import reaching
from fallback_plugins.shared.gates.reaching import Change, Reaching, changed_sources, find
from fallback_tier.repo import RepoContext
from tests.fakes.repository import write


def repository(root: Path, files: Mapping[str, str]) -> RepoContext:
    write(root, dict(files))
    return RepoContext(
        root=root,
        base_commit="0" * 40,
        tracked_files=tuple(sorted(files)),
        manifests=(),
        fix_id="fix-1",
        gate_transition_id="gate-1",
    )


def reached(
    root: Path, files: Mapping[str, str], *changed: str, modules: tuple[str, ...] = ()
) -> tuple[str, ...] | str:
    """Test files that reach these files or modules, in order; or why there are none."""
    repo = repository(root, files)
    tests = [path for path in files if "test" in path and not path.endswith("conftest.py")]
    found = find(repo, Change.of(changed, modules, modules), tests, testing._places(repo))
    return found.files if isinstance(found, Reaching) else found


PYTHON = {
    "pkg/__init__.py": "from pkg.near import one\nfrom pkg.other import two\n",
    "pkg/near.py": "from . import deep\nfrom .deep import thing\n",
    "pkg/deep.py": "import pkg.other\nthing = 1\n",
    "pkg/other.py": "import pkg.deep\n",
    "pkg/apart.py": "",
    "tests/test_direct.py": "from pkg import deep\n",
    "tests/test_through.py": "from pkg.near import one\n",
    "tests/test_around.py": "from pkg import one\n",
    "tests/test_apart.py": "import pkg.apart\n",
}


def test_direct_imports_come_first_and_the_nearest_before_others(tmp_path: Path) -> None:
    """``pkg.deep`` and ``pkg.other`` import each other. What imports ``pkg.apart`` runs ``pkg`` too, and so
    reaches everything: it does not count while other files import the change."""
    files = PYTHON | {f"tests/test_other_{number}.py": "" for number in range(3)}
    found = reached(tmp_path, files, "pkg/deep.py")
    assert found == ("tests/test_direct.py", "tests/test_through.py", "tests/test_around.py")


def test_what_packages_bring_with_them_counts_if_nothing_imports_the_change(tmp_path: Path) -> None:
    files = {
        "pkg/__init__.py": "import pkg._registers\n",
        "pkg/_registers.py": "",
        "pkg/apart.py": "",
        "tests/test_apart.py": "import pkg.apart\n",
        "tests/test_none.py": "",
    }
    assert reached(tmp_path, files, "pkg/_registers.py") == ("tests/test_apart.py",)


@pytest.mark.parametrize(
    "statement",
    [
        "import idna",
        "import idna.core as core",
        "from idna import core",
        "from idna.core import (\n    check,\n)",
        "import os, idna",
        "    import idna",
        "importlib.import_module('idna.core')",
    ],
)
def test_packages_are_reached_by_what_code_imports_them_as(tmp_path: Path, statement: str) -> None:
    files = {
        "app/names.py": f"{statement}\n",
        "tests/test_names.py": "from app.names import it\n",
        "tests/test_idnas.py": "import idnas\nfrom . import idna_tools\n",
        "tests/idna_tools.py": "",
    }
    assert reached(tmp_path, files, modules=("idna",)) == ("tests/test_names.py",)


def test_of_a_namespace_only_the_part_is_reached(tmp_path: Path) -> None:
    files = {
        "tests/test_one.py": "from google import protobuf\n",
        "tests/test_two.py": "from google import auth\n",
    }
    assert reached(tmp_path, files, modules=("google.protobuf",)) == ("tests/test_one.py",)


def test_a_folder_for_sources_and_relative_imports_from_above(tmp_path: Path) -> None:
    files = {
        "src/lib/__init__.py": "",
        "src/lib/a/__init__.py": "",
        "src/lib/a/one.py": "from ..b import two\n",
        "src/lib/b/__init__.py": "",
        "src/lib/b/two.py": "",
        "tests/test_one.py": "from lib.a import one\n",
        "tests/test_none.py": "import lib\n",
    }
    assert reached(tmp_path, files, "src/lib/b/two.py") == ("tests/test_one.py",)


def test_a_changed_conftest_is_reached_by_the_tests_below_it(tmp_path: Path) -> None:
    files = {
        "tests/a/conftest.py": "",
        "tests/a/test_one.py": "",
        "tests/b/test_two.py": "",
    }
    assert reached(tmp_path, files, "tests/a/conftest.py") == ("tests/a/test_one.py",)


def test_a_changed_test_reaches_itself(tmp_path: Path) -> None:
    files = {"tests/test_one.py": "", "tests/test_two.py": ""}
    assert reached(tmp_path, files, "tests/test_two.py") == ("tests/test_two.py",)


JAVASCRIPT = {
    "src/deep.js": "const near = require('./near');\n",
    "src/near.js": "export { thing } from './deep.js';\n",
    "src/lazy.mjs": "const it = await import('./near.js');\n",
    "src/index.ts": "import type { A } from './near';\n",
    "test/deep.test.js": "require('../src/deep');\n",
    "test/lazy.test.mjs": "import '../src/lazy.mjs';\n",
    "test/index.test.ts": "import { a } from '../src';\n",
    "test/none.test.js": "require('../src/none');\n",
    "src/none.js": "",
}


def test_javascript_is_followed_through_each_form_of_import_and_cycles(tmp_path: Path) -> None:
    files = JAVASCRIPT | {f"test/other{number}.test.js": "" for number in range(3)}
    found = reached(tmp_path, files, "src/deep.js")
    assert found == ("test/deep.test.js", "test/index.test.ts", "test/lazy.test.mjs")


@pytest.mark.parametrize(
    "statement",
    [
        "import it from '@scope/one';",
        "const it = require('@scope/one/sub/path.js');",
        "export * from '@scope/one';",
        "const it = await import('@scope/one');",
    ],
)
def test_npms_packages_are_reached_by_name(tmp_path: Path, statement: str) -> None:
    files = {
        "lib/uses.js": f"{statement}\n",
        "test/a.test.js": "import '../lib/uses.js';\n",
        "test/b.test.js": "import '@scope/one-more';\nimport './@scope/one.js';\n",
    }
    assert reached(tmp_path, files, modules=("@scope/one",)) == ("test/a.test.js",)


def test_members_of_a_workspace_and_a_compilers_paths_are_followed(tmp_path: Path) -> None:
    files = {
        "packages/core/package.json": '{"name": "@own/core"}',
        "packages/core/src/index.ts": "export * from './deep';\n",
        "packages/core/src/deep.ts": "",
        "tsconfig.json": '{"compilerOptions": {"baseUrl": ".", // of all\n'
        '  "paths": {"@app/*": ["web/source/*"]}}}',
        "web/source/page.ts": "import { a } from '@own/core';\n",
        "test/member.test.ts": "import { a } from '@own/core';\n",
        "test/alias.test.ts": "import page from '@app/page';\n",
        "test/none.test.ts": "import page from '@other/page';\n",
        "test/no_other.test.ts": "",
    }
    found = reached(tmp_path, files, "packages/core/src/deep.ts")
    assert found == ("test/member.test.ts", "test/alias.test.ts")


def test_why_nothing_is_selected_is_told(tmp_path: Path) -> None:
    files = {"a.py": "", "b.py": "", "tests/test_a.py": "import a\n"}
    assert "every test file" in reached(tmp_path, files, "a.py")
    assert "no test file imports b.py" in reached(tmp_path, files, "b.py")
    assert isinstance(reached(tmp_path, files), str)


def test_of_more_than_half_of_the_files_the_nearest_are_taken(tmp_path: Path) -> None:
    """All that import the change itself, and whole steps beyond."""
    files = {
        "a.py": "",
        "b.py": "import a\n",
        "c.py": "import b\n",
        "tests/test_a.py": "import a\n",
        "tests/test_b.py": "import b\n",
        "tests/test_c.py": "import c\n",
        "tests/test_d.py": "import c\n",
    }
    repo = repository(tmp_path, files)
    tests = [path for path in files if path.startswith("tests/")]
    found = find(repo, Change.of(["a.py"], [], []), tests)
    assert found == Reaching(("tests/test_a.py", "tests/test_b.py"), 4, "a.py", is_cut=True)
    assert isinstance(found, Reaching)
    assert found.which == "the nearest of those that reach a.py"


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"a.py": ""} | {f"tests/test_{number}.py": "import a\n" for number in range(5)}
    files["tests/test_none.py"] = ""
    assert len(reached(tmp_path, files, "a.py")) == 5
    monkeypatch.setattr(reaching, "MAX_TEST_FILES", 2)
    assert reached(tmp_path, files, "a.py") == ("tests/test_0.py", "tests/test_1.py")
    monkeypatch.setattr(reaching, "MAX_SOURCES", 3)
    assert isinstance(reached(tmp_path, files, "a.py"), str)


def test_what_is_no_source_has_no_readers_that_imports_tell() -> None:
    assert changed_sources(["a.js", "package.json", "yarn.lock", "CHANGELOG.md"], is_manifest) == (
        ["a.js"],
        "",
    )
    assert changed_sources(["a.js", "templates/page.html"], is_manifest) == (
        [],
        "templates/page.html",
    )


@pytest.mark.parametrize(
    ("path", "is_test"),
    [
        ("src/a.test.ts", True),
        ("src/a_spec.mjs", True),
        ("test/a.js", True),
        ("src/__tests__/a.jsx", True),
        ("test-a.js", True),
        ("src/a.js", False),
        ("test/fixtures/a.js", False),
        ("test/helpers.js", False),
        ("src/contest.js", False),
        ("test/data.json", False),
    ],
)
def test_test_files_of_javascript(path: str, is_test: bool) -> None:
    assert testing.is_test(path, ".") is is_test
