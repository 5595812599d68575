"""Fixes under rules on the age of releases, with the real npm, pnpm and uv (ADR-0110)."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fallback_audit.event_types import AgeException
from fallback_audit.vocabulary import BlockerKind, RefusalReason
from fallback_plugins import npm, pypi
from fallback_plugins.npm.clients.pnpm import PNPM
from fallback_plugins.npm.clients.provision import PinnedClient
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner
from fallback_tier.outcome import RecipeResult, Selected
from fallback_tier.repo import RepoContext, Settings
from fallback_tier.sandbox.clients import SubprocessClients
from tests.registry import Registry, Universe, serve
from tests.unit.npm.world import Counting
from tests.unit.shared.real_clients import provisioned
from tests.unit.shared.recipes import advisory, after, tracked

pytestmark = pytest.mark.xdist_group("age-rules")

EXPLOITED = Settings(age_exceptions=(AgeException(package="left", reason="exploited"),))
WEEK = Settings(release_age_days=7)


def manifest(**dependencies: str) -> str:
    return json.dumps({"name": "app", "version": "1.0.0", "dependencies": dependencies}, indent=2)


def pyproject(more: str = "", requirement: str = "left>=1") -> str:
    return (
        '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.9"\n'
        f'dependencies = ["{requirement}"]\n{more}'
    )


class Project:
    """Files in a folder, with real clients over a registry on loopback."""

    def __init__(self, registry: Registry, root: Path, files: Mapping[str, str]) -> None:
        environ = {**os.environ, **registry.environ, "UV_NO_CONFIG": ""}
        self.clients: ClientRunner = SubprocessClients({k: v for k, v in environ.items() if v})
        self.root = root
        self.write(files)

    def write(self, files: Mapping[str, str]) -> None:
        for path, text in files.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text, encoding="utf-8")

    def run(self, tool: str, *words: str) -> None:
        done = self.clients.run(tool, words, cwd=self.root, timeout_s=120)
        assert done.ok, done.output

    def fix(self, ecosystem: str, settings: Settings | None = None) -> RecipeResult:
        build = npm.build_ecosystem if ecosystem == "npm" else pypi.build_ecosystem
        repo: RepoContext = tracked(self.root)
        repo = repo.model_copy(update={"settings": settings or Settings()})
        record, plugin = advisory(ecosystem, "left", [("0", "1.1.0")]), build(self.clients)
        selection = plugin.select(record, repo)
        if not isinstance(selection, Selected):
            raise RecipeError(selection.reason, selection.sentence, next_step="")
        return plugin.apply(selection, record, repo)

    def refused(self, ecosystem: str, settings: Settings | None = None) -> RecipeError:
        with pytest.raises(RecipeError) as caught:
            self.fix(ecosystem, settings)
        return caught.value


def npm_releases(*more: tuple[str, str]) -> Universe:
    universe = Universe().npm("left", "1.0.0").npm("left", "1.1.0", published="3 days ago")
    for version, published in more:
        universe.npm("left", version, published=published)
    return universe


def pypi_releases(*more: tuple[str, str], requires: Sequence[str] = ()) -> Universe:
    universe = Universe().pypi("left", "1.0.0")
    universe.pypi("left", "1.1.0", requires, published="3 days ago")
    for version, published in more:
        universe.pypi("left", version, published=published)
    return universe


def locked_by_npm(project: Project) -> None:
    """A lock that holds the affected release, which the range does not force."""
    text = (project.root / "package.json").read_text()
    project.write({"package.json": text.replace("^1.0.0", "1.0.0")})
    project.run("npm", "install", "--package-lock-only", "--min-release-age=0")
    lock = (project.root / "package-lock.json").read_text()
    lock = lock.replace('"left": "1.0.0"', '"left": "^1.0.0"')
    project.write({"package.json": text, "package-lock.json": lock})


def check_too_new(error: RecipeError, said: str) -> datetime:
    """Check that left 1.1.0, published three days ago, is refused in these words. Return when it was."""
    assert error.reason is RefusalReason.RELEASE_TOO_NEW
    published = datetime.now(UTC) - timedelta(days=3)
    assert f"left 1.1.0 was published on {published:%Y-%m-%d}" in error.problem
    assert said in error.problem
    return published


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("min-release-age=7", "`min-release-age=7` (.npmrc:1) admits it from"),
        ("before=2021-01-01", "`before=2021-01-01` (.npmrc:1) admits releases until 2021-01-01"),
    ],
)
def test_npm_refuses_by_the_rule_with_both_dates(tmp_path: Path, rule: str, said: str) -> None:
    with serve(npm_releases()) as registry:
        files = {"package.json": manifest(left="^1.0.0"), ".npmrc": f"{rule}\n"}
        project = Project(registry, tmp_path, files)
        locked_by_npm(project)
        error = project.refused("npm")
    check_too_new(error, said)
    assert "--age-exception left" in error.next_step
    (blocker,) = error.declined[0].blockers
    assert (blocker.kind, blocker.constraint) == (BlockerKind.AGE_RULE, f"`{rule}`")
    assert (blocker.package[:12], blocker.file) == ("left 1.1.0 (", ".npmrc")


def test_npm_takes_a_safe_release_that_is_old_enough(tmp_path: Path) -> None:
    universe = npm_releases(("1.2.0", "2020-06-01"), ("1.3.0", "1 day ago"))
    with serve(universe) as registry:
        files = {"package.json": manifest(left="^1.0.0"), ".npmrc": "min-release-age=7\n"}
        project = Project(registry, tmp_path, files)
        locked_by_npm(project)
        result = project.fix("npm")
    assert [(move.before, move.after) for move in result.moves] == [(("1.0.0",), "1.2.0")]


def test_npm_takes_transitive_releases_that_are_old_enough(tmp_path: Path) -> None:
    universe = Universe().npm("left", "1.0.0").npm("left", "1.1.0", {"right": "^1.0.0"})
    universe.npm("right", "1.0.0").npm("right", "1.1.0", published="2 days ago")
    for number, (rules, settings) in enumerate([("min-release-age=7\n", None), ("", WEEK)]):
        with serve(universe) as registry:
            files = {"package.json": manifest(left="^1.0.0"), ".npmrc": rules}
            project = Project(registry, tmp_path / str(number), files)
            locked_by_npm(project)
            packages = json.loads(after(project.fix("npm", settings), "package-lock.json"))
        assert packages["packages"]["node_modules/right"]["version"] == "1.0.0"


def test_npm_is_asked_once_about_a_package_of_several_projects(tmp_path: Path) -> None:
    universe = Universe().npm("left", "1.0.0").npm("left", "1.1.0", {"right": "^1.0.0"})
    universe.npm("right", "1.0.0")
    with serve(universe) as registry:
        for folder in ("a", "b"):
            locked_by_npm(
                Project(registry, tmp_path / folder, {"package.json": manifest(left="^1.0.0")})
            )
        project = Project(registry, tmp_path, {})
        counting = project.clients = Counting(project.clients)
        assert len(project.fix("npm", WEEK).moves) == 2
    questions = [call for call in counting.calls if call[1] == "view"]
    assert sorted({call[2] for call in questions}) == ["left", "right"]
    assert len(questions) == 2


def test_npm_refuses_a_transitive_release_that_is_too_new(tmp_path: Path) -> None:
    universe = Universe().npm("left", "1.0.0").npm("left", "1.1.0", {"right": "^1.0.0"})
    universe.npm("right", "1.0.0", published="2 days ago")
    with serve(universe) as registry:
        project = Project(registry, tmp_path, {"package.json": manifest(left="^1.0.0")})
        locked_by_npm(project)
        assert project.fix("npm").moves
        error = project.refused("npm", WEEK)
        exception = AgeException(package="right", reason="reviewed")
        settings = WEEK.model_copy(update={"age_exceptions": (exception,)})
        result = project.fix("npm", settings)
    assert "right" in error.problem
    assert any("right 1.0.0" in note and "reviewed" in note for note in result.notes)


def test_npm_without_a_lock_installs_by_its_rule(tmp_path: Path) -> None:
    """A safe release that is too new is not what ``npm install`` takes: the project is affected."""
    with serve(npm_releases()) as registry:
        files = {"package.json": manifest(left="^1.0.0"), ".npmrc": "before=2021-01-01\n"}
        error = Project(registry, tmp_path, files).refused("npm")
    assert error.reason is RefusalReason.RELEASE_TOO_NEW


def test_npm_takes_an_excluded_package(tmp_path: Path) -> None:
    rules = "min-release-age=7\nmin-release-age-exclude[]=left\n"
    with serve(npm_releases()) as registry:
        files = {"package.json": manifest(left="^1.0.0"), ".npmrc": rules}
        project = Project(registry, tmp_path, files)
        locked_by_npm(project)
        assert [move.after for move in project.fix("npm").moves] == ["1.1.0"]


def test_npm_makes_an_exception_and_tells_it(tmp_path: Path) -> None:
    with serve(npm_releases()) as registry:
        files = {"package.json": manifest(left="^1.0.0"), ".npmrc": "min-release-age=7\n"}
        project = Project(registry, tmp_path, files)
        locked_by_npm(project)
        result = project.fix("npm", EXPLOITED)
    assert [change.path for change in result.changes] == ["package-lock.json"]
    (note,) = [note for note in result.notes if "exception" in note]
    assert "`min-release-age=7` (.npmrc:1)" in note
    assert note.endswith("for left: exploited")


def test_without_a_lock_no_exception_helps_against_the_clients_own_rule(tmp_path: Path) -> None:
    files = {"package.json": manifest(left="1.0.0"), ".npmrc": "min-release-age=7\n"}
    with serve(npm_releases()) as registry:
        error = Project(registry, tmp_path / "npm", files).refused("npm", EXPLOITED)
        assert error.kind == "not_kept_by_a_lock"
        assert "left in .npmrc" in error.next_step
        del files[".npmrc"]
        both = WEEK.model_copy(update={"age_exceptions": EXPLOITED.age_exceptions})
        assert Project(registry, tmp_path / "own", files).fix("npm", both).moves
    files = {"requirements.txt": "left==1.0.0\n", "pip.conf": "[global]\nuploaded-prior-to=P7D\n"}
    with serve(pypi_releases()) as registry:
        error = Project(registry, tmp_path / "pip", files).refused("PyPI", EXPLOITED)
    assert "`uploaded-prior-to = P7D` (pip.conf:2)" in error.problem


def test_a_registry_without_dates_is_named(tmp_path: Path) -> None:
    universe = Universe().npm("left", "1.0.0", published=None).npm("left", "1.1.0", published=None)
    with serve(universe) as registry:
        project = Project(registry, tmp_path, {"package.json": manifest(left="^1.0.0")})
        locked_by_npm(project)
        error = project.refused("npm", WEEK)
    assert error.reason is RefusalReason.RELEASE_TOO_NEW
    assert "does not say when left 1.1.0 was published" in error.problem


#: A pnpm that knows rules on ages (from 10.16 on); the product's own is the last of each lock format.
PNPM_WITH_AGES = PinnedClient(
    "pnpm",
    "10.33.0",
    "sha512-EFaLtKavtYyes2MNqQzJUWQXq+vT+rvmc58K55VyjaFJHp21pUTHatjrdXD1xLs9bGN7LLQb/c20f6gjyGSTGQ==",
    "bin/pnpm.cjs",
    "19aa0cbfc43edef999728098486a7eb03f23749799120e31353ef101a1d3d1b8",
)


@pytest.mark.campaign
@pytest.mark.registry("npm")
@pytest.mark.parametrize(
    ("rule", "takes"),
    [
        ("minimumReleaseAge: 10080", "1.0.0"),
        ("minimumReleaseAge: 1440", "1.1.0"),
        ("minimumReleaseAge: 10080\nminimumReleaseAgeExclude:\n- left", "1.1.0"),
        ("minimumReleaseAge: 10080\nminimumReleaseAgeExclude:\n- le*", "1.1.0"),
        ("minimumReleaseAge: 10080\nminimumReleaseAgeExclude:\n- left@1.1.0", "1.1.0"),
        ("minimumReleaseAge: 10080\nminimumReleaseAgeExclude:\n- left@1.0.0", "1.0.0"),
    ],
)
def test_rules_are_read_as_pnpm_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str, takes: str
) -> None:
    """What the project's own pnpm takes is what a fix may take; it installs the patched lock."""
    cache = tmp_path / "cache"
    clients = provisioned(cache / "fallback-tier" / "clients", PNPM["9"], PNPM_WITH_AGES)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    script = clients / PNPM_WITH_AGES.folder / "node_modules" / "pnpm" / PNPM_WITH_AGES.script
    files = {"package.json": manifest(left="1.0.0"), "pnpm-workspace.yaml": "packages:\n- .\n"}
    with serve(npm_releases()) as registry:
        project = Project(registry, tmp_path / "repo", files)
        install = ("node", str(script), "install", "--lockfile-only")
        project.run(*install)
        project.write({"package.json": manifest(left="^1.0.0")})
        project.run(*install)
        project.write({"pnpm-workspace.yaml": f"packages:\n- .\n{rule}\n"})
        if takes == "1.1.0":
            result = project.fix("npm")
            project.write({change.path: change.after or "" for change in result.changes})
            project.run(*install[:-1], "--frozen-lockfile")
        else:
            assert project.refused("npm").reason is RefusalReason.RELEASE_TOO_NEW
        (project.root / "pnpm-lock.yaml").unlink()
        project.run(*install)
    assert f"left@{takes}" in (project.root / "pnpm-lock.yaml").read_text()


@pytest.mark.registry("npm")
@pytest.mark.parametrize("rule", ["minimumReleaseAge: 10080", ""])
def test_pnpm_is_held_to_its_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    cache = tmp_path / "cache"
    provisioned(cache / "fallback-tier" / "clients", PNPM["9"])
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    lock = (
        "lockfileVersion: '9.0'\n\nsettings:\n  autoInstallPeers: true\n"
        "  excludeLinksFromLockfile: false\n\nimporters:\n\n  .:\n    dependencies:\n      left:\n"
        "        specifier: ^1.0.0\n        version: 1.0.0\n\npackages:\n\n  left@1.0.0:\n"
        "    resolution: {integrity: INTEGRITY}\n\nsnapshots:\n\n  left@1.0.0: {}\n"
    )
    universe = npm_releases()
    lock = lock.replace("INTEGRITY", universe.npm_packages["left"]["1.0.0"].integrity)
    files = {
        "package.json": manifest(left="^1.0.0"),
        "pnpm-lock.yaml": lock,
        "pnpm-workspace.yaml": f"packages:\n- .\n{rule}\n",
    }
    with serve(universe) as registry:
        project = Project(registry, tmp_path / "repo", files)
        if rule:
            error = project.refused("npm")
            assert f"`{rule}` (pnpm-workspace.yaml:3) admits it from" in error.problem
        assert "left@1.1.0" in after(project.fix("npm", EXPLOITED), "pnpm-lock.yaml")


#: Poetry's hash of the manifest below.
MADE_BY_POETRY = "c8614781276dc8a9e7015bc4cf71334504abd65ad35fcbe17122974a742d492a"

UV = '[tool.uv]\nexclude-newer = "7 days"\n'


def uv_lock(project: Project) -> None:
    project.run("uv", "lock")


def nothing(_project: Project) -> None:
    """No lock is made."""


@pytest.mark.parametrize(
    ("files", "prepare", "said"),
    [
        ({"pyproject.toml": pyproject(UV)}, uv_lock, "`exclude-newer = 7 days` (pyproject.toml:7)"),
        (
            {"pyproject.toml": pyproject(), "uv.toml": 'exclude-newer = "P7D"\n'},
            uv_lock,
            "`exclude-newer = P7D` (uv.toml:1)",
        ),
        (
            {"requirements.txt": "left==1.0.0\n", "pyproject.toml": UV},
            nothing,
            "`exclude-newer = 7 days` (pyproject.toml:2)",
        ),
        (
            {
                "requirements.txt": "left==1.0.0\n",
                "pip.conf": "[install]\nuploaded-prior-to = P7D\n",
            },
            nothing,
            "`uploaded-prior-to = P7D` (pip.conf:2)",
        ),
        ({"pyproject.toml": pyproject(UV)}, nothing, "`exclude-newer = 7 days`"),
    ],
)
def test_python_refuses_by_the_rule_with_both_dates(
    tmp_path: Path, files: Mapping[str, str], prepare: Callable[[Project], None], said: str
) -> None:
    with serve(pypi_releases()) as registry:
        project = Project(registry, tmp_path, files)
        prepare(project)
        error = project.refused("PyPI")
    published = check_too_new(error, said)
    assert f"admits it from {published + timedelta(days=7):%Y-%m-%d}" in error.problem


@pytest.mark.parametrize(
    ("files", "prepare"),
    [
        ({"pyproject.toml": pyproject(UV, "left==1.0.0")}, uv_lock),
        ({"requirements.txt": "left==1.0.0\n", "pyproject.toml": UV}, nothing),
    ],
)
def test_python_takes_a_safe_release_that_is_old_enough(
    tmp_path: Path, files: Mapping[str, str], prepare: Callable[[Project], None]
) -> None:
    with serve(pypi_releases(("1.2.0", "2020-06-01"))) as registry:
        project = Project(registry, tmp_path, files)
        prepare(project)
        assert {move.after for move in project.fix("PyPI").moves} == {"1.2.0"}


def test_uv_gets_the_exception_in_its_own_settings(tmp_path: Path) -> None:
    with serve(pypi_releases()) as registry:
        project = Project(registry, tmp_path, {"pyproject.toml": pyproject(UV)})
        project.run("uv", "lock")
        result = project.fix("PyPI", EXPLOITED)
        project.write({change.path: change.after or "" for change in result.changes})
        project.run("uv", "lock", "--check")
    published = datetime.now(UTC) - timedelta(days=2)
    line = f'exclude-newer-package = {{left = "{published:%Y-%m-%d}T00:00:00Z"}}\n'
    assert after(result, "pyproject.toml") == pyproject(UV + line)
    assert any("exploited" in note for note in result.notes)


def test_uv_keeps_what_its_settings_file_says(tmp_path: Path) -> None:
    universe = Universe().pypi("left", "1.0.0").pypi("left", "1.1.0", published="2020-02-01")
    universe.pypi("left", "1.2.0", published="2020-09-01")
    files = {"pyproject.toml": pyproject(), "uv.toml": 'exclude-newer = "2020-01-15"\n'}
    with serve(universe) as registry:
        project = Project(registry, tmp_path, files)
        project.run("uv", "lock")
        project.write({"uv.toml": 'exclude-newer = "2020-03-01"\n'})
        project.run("uv", "lock")
        result = project.fix("PyPI")
        project.write({change.path: change.after or "" for change in result.changes})
        project.run("uv", "lock", "--check")
    assert [move.after for move in result.moves] == ["1.1.0"]


def test_uv_takes_transitive_releases_that_are_old_enough_for_a_persons_rule(
    tmp_path: Path,
) -> None:
    """The lock records no rule that the project does not have."""
    universe = Universe().pypi("left", "1.0.0").pypi("left", "1.1.0", ["right>=1"])
    universe.pypi("right", "1.0.0").pypi("right", "1.1.0", published="2 days ago")
    with serve(universe) as registry:
        project = Project(registry, tmp_path, {"pyproject.toml": pyproject()})
        project.run("uv", "lock", "--upgrade-package=left==1.0.0")
        result = project.fix("PyPI", WEEK)
        project.write({change.path: change.after or "" for change in result.changes})
        project.run("uv", "lock", "--check")
    lock = after(result, "uv.lock")
    assert 'name = "right"\nversion = "1.0.0"' in lock
    assert "exclude-newer" not in lock


def test_what_a_fix_of_texts_brings_in_is_held_to_the_rule(tmp_path: Path) -> None:
    universe = Universe().pypi("left", "1.0.0").pypi("left", "1.1.0", ["right>=1"])
    universe.pypi("right", "1.0.0", published="2 days ago")
    with serve(universe) as registry:
        project = Project(registry, tmp_path, {"requirements.txt": "left==1.0.0\n"})
        assert project.fix("PyPI").moves
        error = project.refused("PyPI", WEEK)
    assert "right 1.0.0 was published" in error.problem


def test_what_a_poetry_lock_needs_is_old_enough(tmp_path: Path) -> None:
    universe = Universe().pypi("left", "1.0.0").pypi("left", "1.1.0", ["right"])
    universe.pypi("right", "1.0.0").pypi("right", "2.0.0", published="2 days ago")
    manifest = (
        '[tool.poetry]\nname = "app"\nversion = "1"\ndescription = ""\nauthors = []\n'
        'package-mode = false\n\n[tool.poetry.dependencies]\npython = ">=3.9"\nleft = "1.0.0"\n'
    )
    lock = (
        '[[package]]\nname = "left"\nversion = "1.0.0"\ndescription = ""\noptional = false\n'
        'python-versions = "*"\ngroups = ["main"]\nfiles = []\n\n[metadata]\nlock-version = "2.1"\n'
        f'python-versions = ">=3.9"\ncontent-hash = "{MADE_BY_POETRY}"\n'
    )
    files = {"pyproject.toml": manifest, "poetry.lock": lock}
    with serve(universe) as registry:
        project = Project(registry, tmp_path, files)
        assert 'version = "2.0.0"' in after(project.fix("PyPI"), "poetry.lock")
        project.write({"poetry.toml": "[solver]\nmin-release-age = 7\n"})
        new = after(project.fix("PyPI"), "poetry.lock")
        cooled = after(project.fix("PyPI", WEEK), "poetry.lock")
    assert new == cooled
    assert 'name = "right"\nversion = "1.0.0"' in new


def test_outline_names_the_rules_that_it_does_not_check(tmp_path: Path) -> None:
    record = {it: advisory(it, "left", [("0", "1.1.0")]) for it in ("npm", "PyPI")}
    files = {
        "requirements.txt": "left==1.0.0\n",
        "pip.conf": "[install]\nuploaded-prior-to = P3D\n",
    }
    files |= {"package.json": manifest(left="1.0.0"), ".npmrc": "min-release-age=3\n"}
    with serve(npm_releases()) as registry:
        project = Project(registry, tmp_path, files)
        repo = tracked(tmp_path).model_copy(update={"settings": WEEK})
        notes = {
            "npm": npm.build_ecosystem(project.clients).outline(record["npm"], repo).notes,
            "PyPI": pypi.build_ecosystem(project.clients).outline(record["PyPI"], repo).notes,
        }
    why = "is not checked: no registry was asked when the releases were published."
    assert notes["npm"] == (
        f"`min-release-age=3` (.npmrc:1) {why}",
        f"`--release-age 7` {why}",
    )
    assert notes["PyPI"] == (
        f"`uploaded-prior-to = P3D` (pip.conf:2) {why}",
        f"`--release-age 7` {why}",
    )


def test_offline_no_date_is_known(tmp_path: Path) -> None:
    with serve(pypi_releases()) as registry:
        project = Project(registry, tmp_path, {"requirements.txt": "left==1.0.0\n"})
        error = project.refused("PyPI", WEEK.model_copy(update={"offline": True}))
    assert error.reason is RefusalReason.RELEASE_TOO_NEW
    assert "does not say when left 1.1.0" in error.problem
