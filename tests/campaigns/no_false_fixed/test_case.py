"""Cases are read strictly, their repositories are made as stated, and their halves never move."""

import tomllib
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.campaigns.measuring.clones import git
from tests.campaigns.no_false_fixed.case import (
    Advisory,
    Case,
    CaseError,
    Half,
    Span,
    load_cases,
    make_repository,
    read_case,
    serving,
)

TEXT = """
id = "npm-invented"
report = "A tool that did not find a package."
kind = "ordinary-fix"
named = false
author = "seen"
ecosystem = "npm"
[advisory]
package = "left"
ranges = [{introduced = "0", fixed = "1.1.0"}, {introduced = "2.0.0", last_affected = "2.0.3"}]
[[packages]]
name = "left"
version = "1.0.0"
[files]
"package.json" = '''
{"name": "app", "dependencies": {"left": "{{npm}}left/-/left-1.0.0.tgz"}}
'''
[prepare]
commands = ["npm install --package-lock-only"]
[[installs]]
command = "npm ci"
[expected]
end = "fixed"
changed = ["package.json"]
note = "an ordinary fix"
"""


def written(folder: Path, text: str, name: str = "npm-invented.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_every_case_is_read_and_both_halves_have_cases() -> None:
    cases = load_cases()
    assert len(cases) == len({case.id for case in cases}) >= 80
    assert all(len(load_cases(half=half)) > len(cases) / 3 for half in Half)
    # A tool that answers "unknown" to everything loses most of them.
    decided = [case for case in cases if case.expected.ends <= {"fixed", "not_affected"}]
    assert len(decided) > len(cases) / 2


def test_every_affected_package_has_releases() -> None:
    """A case about a package that its registry does not have proves nothing."""
    for case in load_cases():
        published = {canonicalize_name(release.name) for release in case.packages}
        named = (entry["package"]["name"] for entry in case.record["affected"])
        affected = {canonicalize_name(name) for name in named}
        assert affected & published or case.expected.end != "fixed", case.id


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'kind = "ordinary-fix"',
            'kind = "ordinary-fix"\nseverity = "high"',
            "severity: Extra inputs",
        ),
        ('author = "seen"', 'author = "me"', "author: Input should be 'seen' or 'blind'"),
        ('changed = ["package.json"]', "", "state `changed`"),
        ('package = "left"', "", "state `package` with `ranges`"),
        ('"package.json" =', '"../package.json" =', "not a path inside the repository"),
        ('id = "npm-invented"', 'id = "bun-invented"', "the id begins with one of pip, uv"),
        ('id = "npm-invented"', 'id = "npm-other"', "a case's id is its file's name"),
        ("[files]", "[files", "npm-invented.toml"),
    ],
)
def test_wrong_field_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert read_case(written(tmp_path, TEXT)).id == "npm-invented"
    path = written(tmp_path, TEXT.replace(old, new, 1))
    with pytest.raises(CaseError, match="npm-invented") as error:
        read_case(path)
    assert message in str(error.value)


def test_missing_case_is_named(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match="npm-absent"):
        load_cases(["npm-absent"], folder=tmp_path)


def test_advisory_is_an_osv_record() -> None:
    case = Case.model_validate(tomllib.loads(TEXT))
    (affected,) = case.record["affected"]
    assert affected["package"] == {"ecosystem": "npm", "name": "left"}
    assert [span["events"] for span in affected["ranges"]] == [
        [{"introduced": "0"}, {"fixed": "1.1.0"}],
        [{"introduced": "2.0.0"}, {"last_affected": "2.0.3"}],
    ]
    raw = Advisory(raw='{"id": "TEST-1", "affected": []}')
    assert raw.osv("npm-invented", "npm") == {"id": "TEST-1", "affected": []}
    assert Advisory(package="left", ranges=(Span(fixed="1"),)).osv("x", "PyPI")["affected"]


def test_half_depends_on_the_id_alone() -> None:
    case = Case.model_validate(tomllib.loads(TEXT))
    again = case.model_copy(update={"report": "Another sentence about the report."})
    assert case.half == again.half
    assert case.digest != again.digest


def test_repository_is_made_by_the_real_client(tmp_path: Path) -> None:
    case = Case.model_validate(tomllib.loads(TEXT))
    with serving(case) as (registry, environ):
        root = make_repository(case, registry, environ, tmp_path / "base")
        assert f"{registry.npm_url}left/-/left-1.0.0.tgz" in (root / "package.json").read_text()
    assert git(root, "ls-files").decode().split() == ["package-lock.json", "package.json"]
    assert git(root, "status", "--porcelain") == b""


def test_failing_preparation_is_an_error_of_the_case(tmp_path: Path) -> None:
    table = tomllib.loads(TEXT) | {"prepare": {"commands": ["echo no lock >&2; exit 3"]}}
    case = Case.model_validate(table)
    with (
        serving(case) as (registry, environ),
        pytest.raises(CaseError, match="exited 3: no lock"),
    ):
        make_repository(case, registry, environ, tmp_path / "base")
