"""Where a fix may make a new file, and of what kind: each rule has a path that breaks it alone."""

from pathlib import Path, PurePosixPath

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fallback_tier.patch.creation import creation_reason, text_reason
from fallback_tier.patch.policy import check_policy
from fallback_tier.repo import RepoContext
from tests.fakes.repository import context

FILES = {
    "pyproject.toml": "[project]\n",
    "setup.py": "\n",
    "tool.py": "\n",
    "index.js": "const a = require('left-pad')\nconst b = require('bare/deep')\n",
    "package.json": "{}\n",
    "pkg/__init__.py": "import yaml\nfrom numbers_of import x\n",
    "pkg/read.py": "\n",
    "pkg/data.json": "{}\n",
    "pkg/native.cpython-311-x86_64-linux-gnu.so": "\n",
    "pkg/sub/__init__.py": "\n",
    "pkg/stub.pyi": "\n",
    "plain/one.py": "\n",
    "lib/read.js": "import { x } from 'mixed'\n",
    "lib/deep/util.js": "\n",
    "lib/table.json": "{}\n",
    "lib/Upper.js": "\n",
    "src/read.ts": "\n",
    "types/only.d.ts": "\n",
    "cfg/jest.config.js": "\n",
    "cfg/a.test.js": "\n",
    "docs/conf.py": "\n",
    "docs/a.js": "\n",
    "scripts/a.js": "\n",
    "tests/test_read.py": "\n",
    "tests/__init__.py": "\n",
    "node_modules/x/a.js": "\n",
    ".config/a.js": "\n",
}


@pytest.fixture
def repo(tmp_path: Path) -> RepoContext:
    return context(tmp_path, FILES)


@pytest.mark.parametrize(
    "path",
    ["pkg/limits.py", "pkg/sub/limits.py", "lib/limits.js", "lib/deep/limits.js", "src/limits.ts",
     "limits.js", "lib/strip-path.js", "pkg/_limits.py", "src/Limits.ts"],
)  # fmt: skip
def test_beside_source_of_its_kind_a_file_may_be_made(repo: RepoContext, path: str) -> None:
    assert creation_reason(path, repo) is None


#: What a tool, an interpreter or a person's machine would load, run or obey by itself.
LOADED = [
    "conftest.py", "pkg/conftest.py", "sitecustomize.py", "pkg/usercustomize.py", "pkg/x.pth",
    "setup.py", "pkg/setup.py", "noxfile.py", "pkg/toxfile.py", "tox.ini", "pytest.ini", "package.json",
    "lib/package.json", "package-lock.json", "lib/yarn.lock", ".npmrc", "lib/.npmrc", ".env",
    ".eslintrc.js",
    "lib/.hidden.js", ".github/a.js", ".husky/a.js", "hooks/a.js", "lib/hooks/a.js", "jest.config.js",
    "lib/jest.setup.js", "vitest.config.ts", "src/vitest.config.ts", "lib/.mocharc.js", "lib/mocha.js",
    "lib/ava.config.js", "lib/babel.config.js", "lib/babel-preset.js", "lib/eslint.config.js",
    "webpack.config.js", "lib/webpack.prod.js", "lib/rollup.config.js", "src/vite.config.ts",
    "lib/karma.conf.js", "gulpfile.js", "lib/gruntfile.js", "lib/index.js", "index.ts", "src/main.ts",
    "lib/server.js", "pkg/__main__.py", "pkg/sub/__init__.py", "pkg/new/__init__.py", "pkg/__about__.py",
    "pkg/manage.py", "pkg/wsgi.py", "pkg/settings.py", "pkg/tasks.py", "pkg/testing.py", "lib/a.test.js",
    "lib/test-a.js", "tests/a.py", "lib/test/a.js", "src/a.spec.ts", "lib/__mocks__/a.js",
    "node_modules/x/b.js", "lib/node_modules/b.js", "pkg/migrations/a.py", "src/pages/a.ts",
    "lib/service-worker.js", "src/middleware.ts", "Makefile", "lib/Dockerfile", "pkg/conf.py",
    "pkg/env.py", "pkg/admin.py", "pkg/management/a.py", "lib/knexfile.js",
    "pkg/hatch_build.py", "lib/setup-env.js",
]  # fmt: skip


@pytest.mark.parametrize("path", LOADED)
def test_what_is_loaded_by_its_name_or_its_place_is_never_made(
    repo: RepoContext, path: str
) -> None:
    assert creation_reason(path, repo) is not None


@pytest.mark.parametrize("path", LOADED)
def test_nor_is_it_where_everything_else_speaks_for_it(tmp_path: Path, path: str) -> None:
    """The name, or the folder's, is refused by itself: with source beside it, inside a package."""
    pure = PurePosixPath(path)
    beside = {str(pure.with_name(f"beside{pure.suffix}")): "\n"}
    package = {str(pure.with_name("__init__.py")): "\n"} if len(pure.parts) > 1 else {}
    files = {name: text for name, text in {**beside, **package}.items() if name != path}
    assert creation_reason(path, context(tmp_path, files)) is not None


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("new/limits.py", "ends in .py in that folder"),
        ("lib/limits.ts", "ends in .ts in that folder"),
        ("lib/limits.mjs", "ends in .mjs in that folder"),
        ("types/other.ts", "ends in .ts in that folder"),
        ("cfg/other.js", "ends in .js in that folder"),
        ("docs/b.js", "no product source"),
        ("scripts/b.js", "no product source"),
        ("bin/b.js", "no product source"),
        ("dist/b.js", "no product source"),
        ("vendor/b.js", "no product source"),
        ("pkg/limits.txt", "only source files"),
        ("pkg/limits", "only source files"),
        ("pkg/limits.sh", "only source files"),
        ("pkg/limits.json", "only source files"),
        ("pkg/limits.PY", "only source files"),
        ("pkg/other.pyi", "only source files"),
        ("src/other.d.ts", "only source files"),
        ("pkg/native.py", "'pkg/native.cpython-311-x86_64-linux-gnu.so' is there"),
        ("pkg/data.py", "'pkg/data.json' is there"),
        ("pkg/sub.py", "'pkg/sub/__init__.py' is there"),
        ("lib/deep.js", "'lib/deep/util.js' is there"),
        ("lib/table.js", "'lib/table.json' is there"),
        ("lib/upper.js", "'lib/Upper.js' is there"),
        ("lib/READ.js", "'lib/read.js' is there"),
        ("lib/read.other.js", "'lib/read.js' is there"),
        ("Lib/limits.js", "in that folder"),
        ("limits.py", "top-level module"),
        ("plain/two.py", "top-level module"),
        ("pkg/json.py", "Python's own library"),
        ("pkg/yaml.py", "'pkg/__init__.py' imports another module of that name"),
        ("pkg/numbers_of.py", "'pkg/__init__.py' imports another module"),
        ("lib/left-pad.js", "'index.js' imports another module"),
        ("lib/bare.js", "'index.js' imports another module"),
        ("src/mixed.ts", "'lib/read.js' imports another module"),
        ("lib/aux.js", "Windows"),
        ("pkg/com1.py", "Windows"),
        ("lib/../x.js", "`..` component"),
        ("/lib/x.js", "absolute"),
        ("lib//x.js", "empty"),
        ("lib/x\u202e.js", "invisible"),
        ("lib\\x.js", "backslash"),
        (".git/x.js", "git"),
    ],
)  # fmt: skip
def test_each_rule_has_its_reason(repo: RepoContext, path: str, message: str) -> None:
    reason = creation_reason(path, repo)
    assert reason is not None
    assert message in reason


def test_nothing_is_made_behind_a_link(tmp_path: Path) -> None:
    repo = context(tmp_path / "repo", {"lib/a.js": "\n", "lib/deep/b.js": "\n"})
    assert creation_reason("lib/new.js", repo) is None
    (tmp_path / "repo" / "lib").rename(tmp_path / "elsewhere")
    (tmp_path / "repo" / "lib").symlink_to(tmp_path / "elsewhere")
    for path in ("lib/new.js", "lib/deep/new.js"):
        assert creation_reason(path, repo) == "its folder is, or lies behind, a link"


def test_where_not_every_file_is_known_nothing_is_made(repo: RepoContext) -> None:
    cut = repo.model_copy(update={"tracked_files_cut": True})
    assert "more files than are looked at" in str(creation_reason("lib/limits.js", cut))


@pytest.mark.parametrize("text", ["", " \n\t\n", "#!/usr/bin/env node\nx()\n", "\ufeff#!/bin/sh\n"])
def test_what_is_no_module_is_not_made(text: str) -> None:
    assert text_reason(text) is not None


def test_a_module_is_made() -> None:
    assert text_reason("# a comment\nx = 1\n") is None


NAMES = st.sampled_from(
    ["pkg", "lib", "Lib", "src", "read", "READ", "..", ".", "", ".git", "node_modules", "tests", "limits",
     "json", "index", "conftest", "yaml", "sub", "deep", "a b", "é", "\u212a", "ﬁle", "aux", "x:y", "~"]
)  # fmt: skip
ENDINGS = st.sampled_from(
    ["", ".py", ".js", ".ts", ".d.ts", ".PY", ".pyi", ".pth", ".json", ".test.js"]
)
PATHS = st.builds(lambda parts, end: "/".join(parts) + end, st.lists(NAMES, max_size=4), ENDINGS)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PATHS | st.text(max_size=20))
def test_whatever_may_be_made_is_new_plain_and_beside_its_like(
    repo: RepoContext, path: str
) -> None:
    """What holds of each permission, said another way than the rules say it."""
    if creation_reason(path, repo) is not None:
        return
    pure = PurePosixPath(path)
    assert check_policy([path]) == ()
    assert str(pure) == path
    assert path.casefold() not in {other.casefold() for other in repo.tracked_files}
    assert any(
        PurePosixPath(other).parent == pure.parent and other.endswith(pure.suffix)
        for other in repo.tracked_files
    )
    assert not pure.name.startswith(".")
    assert pure.suffix in {".py", ".js", ".ts"}
