"""Forbidden places, recipe-only files, unsafe paths: one test a rule, and what stays allowed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_tier.outcome import FileChange
from fallback_tier.patch import policy
from fallback_tier.patch.paths import unsafe_reason
from fallback_tier.patch.policy import (
    changes_versions_only,
    check_policy,
    forbidden_reason,
    recipe_only_reason,
)

ALLOWED = """
src/app.py lib/index.js README.md docs/test.md src/latest.js src/contest.py lib/attest.ts
src/inspect.js src/testing/helper.py numpy/testing/utils.py src/specification.py a/protest_x.py
lib/makefile.py src/git.py src/gitlab.js src/environment.ts src/ci/run.py é.py
a.b/c.d.js src/__init__.py bin/run.sh data/names.json src/requirements.py src/setup.js
src/compose.py src/action.py src/actions.yml src/webpack.js lib/rollup.js src/build.py
"""


FORBIDDEN = {
    policy._CI: """.github/workflows/x.yml .github/CODEOWNERS sub/.github/x .gitlab-ci.yml
        .gitlab/ci/x.yml .circleci/config.yml azure-pipelines.yml azure-pipelines-2.yaml Jenkinsfile
        Jenkinsfile.release jenkinsfile .travis.yml .drone.yml .woodpecker.yml .woodpecker/a.yml
        .cirrus.yml bitbucket-pipelines.yml appveyor.yml .buildkite/pipeline.yml cloudbuild.yaml
        buildspec.yml .tekton/a.yaml codecov.yml .GitHub/workflows/x.yml .GITHUB/x
        action.yml sub/action.yaml""",
    policy._GIT: """.gitignore .gitattributes .gitmodules sub/.gitattributes .gitconfig
        .gitkeep .GitModules .git-blame-ignore-revs .githooks2/x""",
    policy._HOOKS: """sitecustomize.py src/sitecustomize.py usercustomize.py a.pth b/c.PTH .npmrc
        sub/.npmrc .yarnrc .yarnrc.yml .yarn/releases/yarn.cjs .pypirc pip.conf pip.ini .envrc .env
        .env.local .netrc .husky/pre-commit .pre-commit-config.yaml lefthook.yml .vscode/tasks.json
        .idea/x.xml .devcontainer/devcontainer.json .pnpmfile.cjs .pnp.cjs
        bunfig.toml uv.toml poetry.toml node_modules/x/index.js node_modules .venv/bin/x
        lib/site-packages/x.py __pycache__/a.pyc .pdbrc .gdbinit .python-version .nvmrc
        .node-version .tool-versions mise.toml .lintstagedrc.json SiteCustomize.py""",
    policy._BUILD: """Makefile makefile sub/GNUmakefile rules.mk justfile Taskfile.yml Gruntfile.js
        gulpfile.js noxfile.py tsconfig.json tsconfig.build.json jsconfig.json babel.config.js
        .babelrc vite.config.ts mypy.ini pyrightconfig.json dodo.py Rakefile
        webpack.config.js webpack.prod.js rollup.config.mjs esbuild.config.js binding.gyp deps/a.gyp
        common.gypi CMakeLists.txt meson.build hatch_build.py pdm_build.py versioneer.py ruff.toml
        .flake8 .pylintrc eslint.config.js .eslintrc.cjs biome.json .swcrc""",
    policy._IMAGE: """Dockerfile Dockerfile.dev api.dockerfile Containerfile docker-compose.yml
        docker-compose.dev.yaml compose.yaml compose.dev.yml .dockerignore""",
    policy._TESTS: """tests/a.py test/a.js src/tests/a.py tests __tests__/a.js spec/a.js specs/a
        e2e/a.ts __mocks__/fs.js src/test_a.py src/a_test.py tests.py test.py conftest.py
        sub/conftest.py pytest.ini tox.ini tox.toml .coveragerc a.test.js a.test.tsx a.spec.ts a.spec.mjs
        a-test.js test-a.js test.js tests.mjs a.snap jest.config.js jest.config.json jest.setup.ts
        vitest.config.ts vitest.workspace.ts karma.conf.js .mocharc.yml ava.config.js .nycrc
        .nycrc.json playwright.config.ts cypress.config.js cypress.json Tests/a.py CONFTEST.PY""",
}  # fmt: skip

RECIPE_ONLY = """package-lock.json sub/package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml
    bun.lock bun.lockb uv.lock poetry.lock Pipfile.lock pdm.lock pylock.toml pylock.dev.toml
    pnpm-workspace.yaml sub/pnpm-workspace.yaml
    package.json requirements.txt requirements-dev.txt dev-requirements.txt requirements.in
    constraints.txt pyproject.toml setup.cfg setup.py Pipfile environment.yml tests/requirements.txt
    test/package.json"""

UNSAFE = [
    "", "/etc/passwd", "../x", "a/../../x", "./a", "a//b", "a/", ".git/config", "a/.git/hooks/x",
    ".GIT/config", ".git./config", ".git /config", "git~1/config", "GIT~2/x", "gi7eba~1/x",
    ".git::$INDEX_ALLOCATION/x", ".g\u200cit/config", "\uff0egit/config", "a\\b", "C:/x", "c:x",
    "a\nb", "a\tb", "a\0b", "a\x7fb", "a\x85b", "a\u202eb", "a\u2028b", "\ufeffa", "a\ud800", 'a"b',
    " a", "a ", "a/b.", "a./b", "x" * 256, "/".join(["abcdefg"] * 600),
]  # fmt: skip


@pytest.mark.parametrize(
    ("place", "path"),
    [(place, path) for place, paths in FORBIDDEN.items() for path in paths.split()],
)
def test_forbidden_with_its_reason(place: policy.Place, path: str) -> None:
    assert forbidden_reason(path) == place.reason


@pytest.mark.parametrize("path", RECIPE_ONLY.split())
def test_manifests_and_locks_are_for_recipes(path: str) -> None:
    assert forbidden_reason(path) is None
    assert recipe_only_reason(path) is not None
    assert check_policy([path]) == (f"{path!r} may not be changed: {recipe_only_reason(path)}.",)
    assert check_policy([path], allowed=frozenset({path})) == ()


def _allowed() -> list[str]:
    return [*ALLOWED.split(), "b c/d e.py"]


@pytest.mark.parametrize("path", _allowed())
def test_ordinary_source_is_allowed(path: str) -> None:
    assert forbidden_reason(path) is None
    assert recipe_only_reason(path) is None
    assert check_policy([path]) == ()


@pytest.mark.parametrize("path", UNSAFE)
def test_unsafe_paths(path: str) -> None:
    assert unsafe_reason(path) is not None
    assert forbidden_reason(path) == unsafe_reason(path)


@pytest.mark.parametrize("place", [*FORBIDDEN, *policy._dependency_files()])
def test_every_glob_of_every_rule_works(place: policy.Place) -> None:
    inside = [f"{glob.replace('*', 'x')}/file.txt" for glob in place.folders.split()]
    files = [glob.replace("*", "x") for glob in place.files.split()]
    for path in inside + files:
        for variant in (path, path.upper(), f"sub/{path}"):
            assert forbidden_reason(variant) or recipe_only_reason(variant), variant


def test_a_declaration_opens_no_forbidden_place() -> None:
    paths = [".github/workflows/x.yml", "tests/a.py", ".npmrc", "../x"]
    assert len(check_policy(paths, allowed=frozenset(paths))) == len(paths)


@pytest.mark.parametrize(
    ("path", "opened"),
    [
        ("Dockerfile", True),
        ("docker-compose.yml", True),
        ("sub/Makefile", True),
        ("noxfile.py", True),
        ("tox.ini", True),
        ("tests/base.lst", True),
        ("environment.yml", True),
        ("tests/environment.yaml", True),
        (".github/environment.yml", False),
        ("pdm.lock", False),
        ("tests/pdm.lock", False),
        ("setup.py", False),
        ("package.json", False),
        ("tests/test_a.py", False),
        ("conftest.py", False),
        (".github/workflows/a.yml", False),
        (".github/Dockerfile", False),
        (".devcontainer/Dockerfile", False),
        (".env", False),
        ("ruff.toml", False),
        ("../Makefile", False),
    ],
)
def test_new_versions_open_image_recipes_tasks_and_environments_but_no_ci_and_no_lock(
    path: str, opened: bool
) -> None:
    assert check_policy([path], pins=frozenset({path})) == (() if opened else check_policy([path]))


@pytest.mark.parametrize(
    ("after", "only"),
    [
        ("RUN pip install a==1.0 b==2.0.1rc1", True),
        ("RUN pip install a==1.0 b==2.0,>=2.0.1", True),
        ("RUN pip install a==1.0 b==1.0", False),
        ("RUN pip install a==1.0 c==2.0", False),
        ("RUN pip install a==1.0 b==2.0 && x", False),
        ("RUN pip install a==1.0 b>=2.0", False),
        ("RUN pip install a==1.0 b==$(x)", False),
        ("RUN pip install a==1.0 b==2.0;x", False),
    ],
)
def test_a_change_of_versions_alone(after: str, only: bool) -> None:
    assert changes_versions_only("RUN pip install a==1.0 b==1.0", after) is only


def test_changes_and_paths_are_judged_alike() -> None:
    change = FileChange(path="tests/a.py", before="a", after=None)
    assert check_policy([change, "tests/a.py"]) == check_policy(["tests/a.py"])


@given(st.text(max_size=30))
def test_any_text_gets_an_answer(path: str) -> None:
    reason = forbidden_reason(path) or recipe_only_reason(path)
    assert len(check_policy([path])) == (reason is not None)


@given(st.sampled_from(_allowed()), st.sampled_from([".git", ".GIT", "..", ".github", "tests"]))
def test_a_bad_folder_anywhere_is_found(path: str, folder: str) -> None:
    assert forbidden_reason(f"{folder}/{path}") is not None
    assert forbidden_reason(f"src/{folder}/{path}") is not None
