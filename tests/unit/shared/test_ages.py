"""Rules on the age of releases, as each client's settings write them (ADR-0110)."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fallback_audit.event_types import AgeException
from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.shared.ages import Ages, duration_in, moment_in
from fallback_tier.repo import Settings
from tests.unit.shared.recipes import repository

NOW = datetime.now(UTC)
MINUTE = timedelta(minutes=1)
UV = '[tool.uv]\nexclude-newer = "7 days"\n'


def ages(
    root: Path,
    files: Mapping[str, str],
    path: str,
    published: datetime | None = None,
    settings: Settings | None = None,
) -> Ages:
    repo = repository(root, {path: "", **files})
    repo = repo.model_copy(update={"settings": settings or Settings()})
    ecosystem = "npm" if path.endswith("package.json") else "PyPI"
    return Ages.of(repo, ecosystem, path, lambda _package, _version: published)


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("7 days", 7),
        ("1 week", 7),
        ("24 hours", 1),
        ("2 weeks, 3 days", 17),
        ("30 days ago", 30),
        ("P7D", 7),
        ("P1W", 7),
        ("PT12H", 0.5),
        ("3d", 3),
        ("1d 12h", 1.5),
        ("10080", 7),
    ],
)
def test_durations_of_every_client_are_read(text: str, days: float) -> None:
    assert duration_in(text, MINUTE) == timedelta(days=days)


@pytest.mark.parametrize("text", ["", "P", "yesterday", "1 month", "P1M", "2026-01-31", "7 days x"])
def test_what_is_no_duration_is_none(text: str) -> None:
    assert duration_in(text) is None


def test_a_bare_number_needs_a_unit() -> None:
    assert duration_in("7") is None


def test_a_day_counts_to_its_end_for_uv_alone() -> None:
    assert moment_in("2026-01-31", day_ends=True) == datetime(2026, 2, 1, tzinfo=UTC)
    assert moment_in("2026-01-31") == datetime(2026, 1, 31, tzinfo=UTC)
    assert moment_in("2026-01-31T10:00:00+02:00", day_ends=True) == datetime(
        2026, 1, 31, 8, tzinfo=UTC
    )


@pytest.mark.parametrize(
    ("path", "text", "label", "days"),
    [
        (".npmrc", "fund=false\nmin-release-age=7\n", "`min-release-age=7` (.npmrc:2)", 7),
        (".npmrc", "minimum-release-age = 2880", "`minimum-release-age=2880` (.npmrc:1)", 2),
        (
            "pnpm-workspace.yaml",
            "packages:\n- a\n\nminimumReleaseAge: 10080 # a week\n",
            "`minimumReleaseAge: 10080` (pnpm-workspace.yaml:4)",
            7,
        ),
        (".yarnrc.yml", "npmMinimalAgeGate: 3d\n", "`npmMinimalAgeGate: 3d` (.yarnrc.yml:1)", 3),
        (
            ".yarnrc.yml",
            "npmMinimalAgeGate: 1440",
            "`npmMinimalAgeGate: 1440` (.yarnrc.yml:1)",
            1,
        ),
        (
            "bunfig.toml",
            "[install]\nminimumReleaseAge = 259200\n",
            "`minimumReleaseAge = 259200` (bunfig.toml:2)",
            3,
        ),
        (
            "pyproject.toml",
            '[tool.uv]\nexclude-newer = "7 days"\n',
            "`exclude-newer = 7 days` (pyproject.toml:2)",
            7,
        ),
        (
            "pyproject.toml",
            '[tool.uv.pip]\nexclude-newer = "P7D"\n',
            "`exclude-newer = P7D` (pyproject.toml:2)",
            7,
        ),
        ("uv.toml", 'exclude-newer = "1 week"\n', "`exclude-newer = 1 week` (uv.toml:1)", 7),
        (
            "poetry.toml",
            "[solver]\nmin-release-age = 10\n",
            "`min-release-age = 10` (poetry.toml:2)",
            10,
        ),
        (
            "pip.conf",
            "[install]\nuploaded-prior-to = P3D\n",
            "`uploaded-prior-to = P3D` (pip.conf:2)",
            3,
        ),
    ],
)
def test_each_clients_rule_is_read_with_its_place(
    tmp_path: Path, path: str, text: str, label: str, days: int
) -> None:
    project = "requirements.txt" if path.endswith(("uv.toml", "poetry.toml", "pip.conf")) else ""
    project = project or ("requirements.txt" if path == "pyproject.toml" else "package.json")
    found = ages(tmp_path, {path: text}, project, NOW - timedelta(days=days, hours=-1))
    error = found.problem("left", "1.1.0")
    assert error is not None
    assert error.reason is RefusalReason.RELEASE_TOO_NEW
    assert label in error.problem
    published = NOW - timedelta(days=days, hours=-1)
    assert f"published on {published:%Y-%m-%d %H:%M} UTC" in error.problem
    assert f"from {published + timedelta(days=days):%Y-%m-%d %H:%M} UTC on" in error.problem
    old = ages(tmp_path / "old", {path: text}, project, NOW - timedelta(days=days, hours=1))
    assert old.problem("left", "1.1.0") is None


@pytest.mark.parametrize(
    ("path", "text", "project"),
    [
        (".npmrc", "before=2026-01-31", "package.json"),
        ("pyproject.toml", "[tool.uv]\nexclude-newer = 2026-01-31\n", "requirements.txt"),
        ("uv.toml", 'exclude-newer = "2026-01-31T00:00:00Z"\n', "uv.lock"),
        ("pip.ini", "[global]\nuploaded-prior-to = 2026-01-31\n", "requirements.txt"),
    ],
)
def test_a_fixed_date_admits_nothing_later(
    tmp_path: Path, path: str, text: str, project: str
) -> None:
    found = ages(tmp_path, {path: text}, project, datetime(2026, 2, 2, tzinfo=UTC))
    error = found.problem("left", "1.1.0")
    assert error is not None
    assert "admits releases until 2026-0" in error.problem
    assert "--age-exception left" in error.next_step
    older = ages(tmp_path / "older", {path: text}, project, datetime(2026, 1, 30, tzinfo=UTC))
    assert older.problem("left", "1.1.0") is None


@pytest.mark.parametrize(
    ("path", "text", "admitted", "refused"),
    [
        (
            ".npmrc",
            "min-release-age=7\nmin-release-age-exclude[]=@us/*\nmin-release-age-exclude[]=left",
            ["@us/a", "left"],
            ["right", "@them/a", "@us/a/b", "leftish"],
        ),
        (
            "pnpm-workspace.yaml",
            "minimumReleaseAge: 10080\nminimumReleaseAgeExclude:\n- left@1.1.0 || 1.2.0\n- '@us/*'\n",
            ["left", "@us/a"],
            ["right"],
        ),
        (
            ".yarnrc.yml",
            "npmMinimalAgeGate: 3d\nnpmPreapprovedPackages:\n- left@npm:1.1.0\n",
            ["left"],
            ["right"],
        ),
        (
            "bunfig.toml",
            '[install]\nminimumReleaseAge = 259200\nminimumReleaseAgeExcludes = ["left"]\n',
            ["left"],
            ["right"],
        ),
        (
            "pyproject.toml",
            UV + 'exclude-newer-package = { Left_Pad = false, right = "1 day" }\n',
            ["left-pad"],
            ["right", "up"],
        ),
        (
            "pyproject.toml",
            '[tool.uv]\n[tool.uv.exclude-newer-package]\nleft = "2026-01-01"\n',
            ["right"],
            ["left"],
        ),
        (
            "poetry.toml",
            '[solver]\nmin-release-age = 7\nmin-release-age-exclude = "left, up"\n',
            ["left", "up"],
            ["right"],
        ),
        (".npmrc", "min-release-age=0\nbefore=\n", ["left"], []),
    ],
)
def test_exempt_packages_are_admitted(
    tmp_path: Path, path: str, text: str, admitted: list[str], refused: list[str]
) -> None:
    is_npm = not path.endswith(("pyproject.toml", "poetry.toml"))
    found = ages(tmp_path, {path: text}, "package.json" if is_npm else "requirements.txt", NOW)
    assert [name for name in admitted if found.problem(name, "1.1.0")] == []
    assert [name for name in refused if found.problem(name, "1.1.0") is None] == []


def test_a_version_that_is_not_named_is_not_exempt(tmp_path: Path) -> None:
    text = "minimumReleaseAge: 10080\nminimumReleaseAgeExclude: [left@1.1.0]\n"
    found = ages(tmp_path, {"pnpm-workspace.yaml": text}, "package.json", NOW)
    assert found.problem("left", "1.1.1") is not None


@pytest.mark.parametrize(
    "text", ["min-release-age=soon", "before=${CUTOFF}", "minimum-release-age=-1"]
)
def test_a_rule_that_cant_be_read_admits_nothing(tmp_path: Path, text: str) -> None:
    long_ago = datetime(2010, 1, 1, tzinfo=UTC)
    error = ages(tmp_path, {".npmrc": text}, "package.json", long_ago).problem("left", "1.1.0")
    assert error is not None
    assert "can't be read as a date or a duration" in error.problem


def test_an_unknown_date_is_not_old_enough(tmp_path: Path) -> None:
    error = ages(tmp_path, {".npmrc": "min-release-age=1"}, "package.json").problem("left", "1.1.0")
    assert error is not None
    assert error.reason is RefusalReason.RELEASE_TOO_NEW
    assert "does not say when left 1.1.0 was published" in error.problem
    assert "(.npmrc:1)" in error.problem


def test_a_rule_above_the_project_holds_and_the_nearest_counts(tmp_path: Path) -> None:
    files = {".npmrc": "min-release-age=7", "a/.npmrc": "min-release-age=30"}
    found = ages(tmp_path, files, "a/b/package.json", NOW)
    assert [rule.label for rule in found.rules] == ["`min-release-age=30` (a/.npmrc:1)"]
    above = ages(tmp_path / "other", {".npmrc": "min-release-age=7"}, "a/package.json", NOW)
    assert [rule.file for rule in above.rules] == [".npmrc"]


def test_the_strictest_rule_is_named(tmp_path: Path) -> None:
    settings = Settings(release_age_days=30)
    files = {".npmrc": "min-release-age=7"}
    found = ages(tmp_path, files, "package.json", NOW - timedelta(days=10), settings)
    error = found.problem("left", "1.1.0")
    assert error is not None
    assert "`--release-age 30` admits it from" in error.problem


def test_an_exception_is_for_its_package_and_is_told(tmp_path: Path) -> None:
    exception = AgeException(package="Left_Pad", reason="exploited in the wild")
    settings = Settings(release_age_days=7, age_exceptions=(exception,))
    found = ages(tmp_path, {}, "requirements.txt", NOW, settings)
    assert found.problem("left-pad", "1.1.0") is None
    assert found.problem("right", "1.1.0") is not None
    before = datetime.now(UTC)
    (note,) = found.notes([("left-pad", "1.1.0"), ("right", "1.1.0")])
    assert "--release-age 7" in note
    days = {before.date(), datetime.now(UTC).date()}  # two at midnight
    assert any(f"exception of {day} for left-pad: exploited in the wild" in note for day in days)


def test_without_a_rule_nothing_is_asked(tmp_path: Path) -> None:
    def asked(package: str, version: str) -> datetime | None:
        raise AssertionError(f"{package} {version}")

    found = Ages.of(repository(tmp_path, {"package.json": ""}), "npm", "package.json", asked)
    assert found.first_problem([("left", "1.1.0")]) is None
    assert found.admits("left", "1.1.0")


def test_only_a_lack_of_fixed_versions_is_explained_by_a_rule(tmp_path: Path) -> None:
    """A client that is missing, or a parent in the way, stays the reason."""
    found = ages(tmp_path, {".npmrc": "min-release-age=7"}, "package.json", NOW)
    assert not found.admits("left", "1.1.0")
    behind = found.reason_behind(RefusalReason.NO_FIXED_VERSION, "No version of left.", "left")
    assert behind is found.problem("left", "1.1.0")
    assert found.reason_behind(RefusalReason.NO_FIXED_VERSION, "None of right.", "right") is None
    assert found.reason_behind(RefusalReason.TOOL_MISSING, "yarn is not available.", "left") is None
    assert behind is not None
    quoted = f"It would not do. {behind.problem}"
    assert found.reason_behind(RefusalReason.RESOLVER_FAILED, quoted, "other") is behind
