"""A manifest or lock that can't be read: nothing crashes, another project is fixed all the same, and the
file is named; where it is the affected project's, or nothing else is affected, the refusal names it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.npm import build_ecosystem as npm
from fallback_plugins.npm.surveying.projects import left_out as npm_left_out
from fallback_plugins.npm.surveying.survey import survey as npm_survey
from fallback_plugins.pypi import build_ecosystem as pypi
from fallback_plugins.pypi.surveying.survey import left_out as pypi_left_out
from fallback_plugins.pypi.surveying.survey import survey as pypi_survey
from fallback_plugins.shared.ladder import NO_TEXTS, ProjectFix
from fallback_plugins.shared.unread import Lenient, surveyed
from fallback_tier.advisory import Advisory, bundle
from fallback_tier.errors import RecipeError, RepositoryError, StoppedError
from fallback_tier.outcome import Left, NotApplicable, Selected, not_resolved
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import RepoContext
from tests.unit.shared.recipes import FakeClients, advisory
from tests.unit.shared.unreadable import FAULTS, repository

NPM_MANIFEST = '{\n  "name": "app",\n  "dependencies": {\n    "left": "1.0.0"\n  }\n}\n'
PYPROJECT = '[project]\nname = "app"\nversion = "1"\ndependencies = ["left==1.0.0"]\n'


def _npm_lock() -> str:
    packages = {
        "": {"name": "app", "dependencies": {"left": "1.0.0"}},
        "node_modules/left": {"version": "1.0.0"},
    }
    return json.dumps({"name": "app", "lockfileVersion": 3, "packages": packages})


@dataclass(frozen=True)
class Kind:
    """A kind of file, with a text of it that holds the affected version. ``beside``: what makes a project
    of it; ``good``: a project of the ecosystem that can be fixed without any client."""

    text: str
    plugin: EcosystemPlugin
    ecosystem: str
    good: tuple[str, str]
    beside: Mapping[str, str] = field(default_factory=dict)

    @property
    def record(self) -> Advisory:
        return advisory(self.ecosystem, "left", [("0", "2.0.0")])


def of_npm(text: str, **beside: str) -> Kind:
    good = ("app/package.json", NPM_MANIFEST)
    return Kind(text, npm(FakeClients()), "npm", good, beside)


def of_python(text: str, **beside: str) -> Kind:
    good = ("app/requirements.txt", "left==1.0.0\n")
    return Kind(text, pypi(FakeClients()), "PyPI", good, beside)


_TABLE = '[[package]]\nname = "left"\nversion = "1.0.0"\n'
_NPM, _PY = {"package.json": NPM_MANIFEST}, {"pyproject.toml": PYPROJECT}

KINDS = {
    "package.json": of_npm(NPM_MANIFEST),
    "package-lock.json": of_npm(_npm_lock(), **_NPM),
    "npm-shrinkwrap.json": of_npm(_npm_lock(), **_NPM),
    "yarn.lock": of_npm('# yarn lockfile v1\n\n\nleft@1.0.0:\n  version "1.0.0"\n', **_NPM),
    "pnpm-lock.yaml": of_npm(
        "lockfileVersion: '9.0'\nimporters:\n  .:\n    dependencies:\n      left:\n"
        "        specifier: 1.0.0\n        version: 1.0.0\n"
        "packages:\n  left@1.0.0:\n    resolution: {integrity: x}\nsnapshots:\n  left@1.0.0: {}\n",
        **_NPM,
    ),
    "requirements.txt": of_python("left==1.0.0\n"),
    "pyproject.toml": of_python(PYPROJECT),
    "uv.lock": of_python(f"version = 1\n{_TABLE}", **_PY),
    "poetry.lock": of_python(f'{_TABLE}[metadata]\nlock-version = "2.0"\n', **_PY),
    "pdm.lock": of_python(_TABLE, **_PY),
    "pylock.toml": of_python(_TABLE.replace("package", "packages")),
    "Pipfile": of_python('[packages]\nleft = "==1.0.0"\n'),
    "Pipfile.lock": of_python(
        '{"_meta": {}, "default": {"left": {"version": "==1.0.0"}}, "develop": {}}',
        Pipfile='[packages]\nleft = "==1.0.0"\n',
    ),
    "setup.cfg": of_python("[options]\ninstall_requires =\n    left==1.0.0\n"),
    "setup.py": of_python(
        "from setuptools import setup\nsetup(install_requires=['left==1.0.0'])\n"
    ),
}

#: Texts of lines say something whatever they hold, and an empty manifest asks for nothing: not at fault.
LINES = {"requirements.txt", "setup.cfg", "setup.py"}
SAYS_NOTHING = {
    *((name, "empty") for name in (*LINES, "pyproject.toml", "Pipfile", "pylock.toml")),
    *((name, fault) for name in LINES for fault in FAULTS[2:10]),
    *((name, "another type") for name in ("pyproject.toml", "uv.lock", "poetry.lock", "pdm.lock")),
    *((name, "another type") for name in ("pylock.toml", "Pipfile")),
    *((name, "nothing at all") for name in ("pyproject.toml", "Pipfile", "pylock.toml")),
}

#: A line that asks for the package in a form that is not edited: no damage, and refused as ever.
ODD_LINES = {("requirements.txt", "deep TOML"), ("setup.cfg", "deep TOML")}

#: YAML is read for half a second before it is too deep: of two that are, one runs with the suite.
SLOW = ("pnpm-lock.yaml", "a list 10,000 deep")

CASES = [
    pytest.param(name, fault, marks=[pytest.mark.campaign] if (name, fault) == SLOW else [])
    for name in KINDS
    for fault in FAULTS
    if (name, fault) not in ODD_LINES
]


def elsewhere(root: Path, kind: Kind, name: str, fault: str, folder: str) -> RepoContext:
    """A project that can be fixed, and the file in another folder."""
    path = f"{folder}/{name}"
    return repository(root, {kind.good[0]: kind.good[1], path: kind.text}, it=(path, fault))


@pytest.mark.parametrize(("name", "fault"), CASES)
def test_in_a_fixture_it_stops_nothing(name: str, fault: str, tmp_path: Path) -> None:
    kind, record = KINDS[name], KINDS[name].record
    repo = elsewhere(tmp_path, kind, name, fault, "test/fixtures")
    selection = kind.plugin.select(record, repo)
    assert isinstance(selection, Selected), selection
    result = kind.plugin.apply(selection, record, repo)
    assert [change.path for change in result.changes] == [kind.good[0]]
    assert result.left == ()
    messages = [note for note in result.notes if f"test/fixtures/{name}" in note]
    outline = kind.plugin.outline(record, repo)
    assert [move.manifest for move in outline.moves] == [kind.good[0]]
    assert outline.left == ()
    if fault in ("not UTF-8", "UTF-16", *FAULTS[10:]):  # nobody can read these, whatever they are
        assert messages
        assert any(f"test/fixtures/{name}" in note for note in outline.notes)


@pytest.mark.parametrize(("name", "fault"), CASES)
def test_of_the_affected_project_it_is_the_refusal(name: str, fault: str, tmp_path: Path) -> None:
    kind, record = KINDS[name], KINDS[name].record
    files = {**kind.beside, name: kind.text}
    repo = repository(tmp_path, files, it=(name, fault))
    selection = kind.plugin.select(record, repo)
    if (name, fault) in SAYS_NOTHING:
        return  # it can be read, and asks for nothing, or for something else
    assert isinstance(selection, NotApplicable), selection
    if fault in ("empty", "nothing at all") and not kind.beside:
        assert selection.reason is RefusalReason.NOT_AFFECTED  # it names nothing
        return
    assert selection.reason is RefusalReason.UNKNOWN
    assert f"'{name}'" in selection.sentence
    assert selection.sentence.count(". ") >= 1, "a next step comes behind the reason"


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("fault", ["a broken link", "not UTF-8", "UTF-16"])
def test_with_nothing_else_affected_it_is_unknown_not_clean(
    name: str, fault: str, tmp_path: Path
) -> None:
    kind, record = KINDS[name], KINDS[name].record
    path = f"test/fixtures/{name}"
    good = kind.good[1].replace("left", "other")
    repo = repository(tmp_path, {kind.good[0]: good, path: kind.text}, it=(path, fault))
    selection = kind.plugin.select(record, repo)
    assert isinstance(selection, NotApplicable)
    assert selection.reason is RefusalReason.UNKNOWN
    assert path in {item.path for item in selection.unread}
    assert "unknown" in selection.sentence


@pytest.mark.parametrize("name", KINDS)
def test_what_visibly_names_something_else_concerns_nobody(name: str, tmp_path: Path) -> None:
    kind, record = KINDS[name], KINDS[name].record
    path = f"test/fixtures/{name}"
    nothing = "{}" if kind.ecosystem == "npm" else ""
    texts = {path: kind.text.replace("left", "other"), kind.good[0]: nothing}
    repo = repository(tmp_path, texts, it=(path, "not UTF-8"))
    selection = kind.plugin.select(record, repo)
    assert isinstance(selection, NotApplicable)
    assert selection.reason is RefusalReason.NOT_AFFECTED


@pytest.mark.parametrize("name", ["package.json", "requirements.txt"])
@pytest.mark.parametrize("fault", ["not UTF-8", "UTF-16"])
def test_a_project_that_visibly_asks_for_it_is_no_fixture(
    name: str, fault: str, tmp_path: Path
) -> None:
    """Other clients may well read it, as pip does UTF-16: a fix without it would be half of one."""
    kind, record = KINDS[name], KINDS[name].record
    repo = elsewhere(tmp_path, kind, name, fault, "other")
    selection = kind.plugin.select(record, repo)
    if isinstance(selection, Selected):
        with pytest.raises((RecipeError, RepositoryError), match=f"other/{name}"):
            kind.plugin.apply(selection, record, repo)
    else:
        assert f"other/{name}" in selection.sentence


@pytest.mark.parametrize("name", ["package.json", "requirements.txt"])
def test_a_link_to_a_manifest_says_nothing_new(name: str, tmp_path: Path) -> None:
    """What it leads to is read, and fixed, by its own name: nothing is unknown."""
    kind, record = KINDS[name], KINDS[name].record
    path, good = f"docs/{name}", kind.good
    repo = repository(tmp_path, {good[0]: good[1], path: ""}, it=(path, "a broken link"))
    (tmp_path / path).unlink()
    (tmp_path / path).symlink_to(f"../{good[0]}")
    selection = kind.plugin.select(record, repo)
    assert isinstance(selection, Selected)
    assert not any(path in note for note in kind.plugin.apply(selection, record, repo).notes)
    other = advisory(kind.ecosystem, "nobody", [("0", "2.0.0")])
    reported = kind.plugin.select(other, repo)
    assert isinstance(reported, NotApplicable)
    # Offline, what the good one depends on is unknown; the link adds nothing to that.
    assert [item.path for item in reported.unread] == [good[0]]


@pytest.mark.parametrize("name", ["package-lock.json", "uv.lock"])
def test_of_a_bundle_only_what_the_project_names_is_left(name: str, tmp_path: Path) -> None:
    """The lock that can't be read is of a project that asks for the one package, not for the other."""
    kind = KINDS[name]
    one, two = kind.record, advisory(kind.ecosystem, "right", [("0", "2.0.0")])
    both = bundle([it.model_copy(update={"id": f"A-{n}"}) for n, it in enumerate((one, two))])
    files = {**kind.beside, name: "", kind.good[0]: kind.good[1].replace("left", "right")}
    outline = kind.plugin.outline(both, repository(tmp_path, files, it=(name, "a broken link")))
    assert [(item.manifest, item.advisory_ids) for item in outline.left] == [(name, ("A-0",))]
    assert [move.package for move in outline.moves] == ["right"]


def test_many_are_counted(tmp_path: Path) -> None:
    kind = KINDS["package.json"]
    spoilt = {f"it{n}": (f"test/{n}/package.json", "a broken link") for n in range(8)}
    repo = repository(tmp_path, {kind.good[0]: kind.good[1]}, **spoilt)
    result = kind.plugin.apply(Selected(recipe="npm-ladder"), kind.record, repo)
    named = [note for note in result.notes if "is, or lies behind, a symbolic link" in note]
    assert len(named) == 5
    assert "3 more manifests or locks could not be read." in result.notes


# --- what a gate makes of it ------------------------------------------------------------------------


def found(kind: Kind, base: RepoContext, patched: RepoContext) -> tuple[object, str]:
    survey, left_out = (
        (npm_survey, npm_left_out) if kind.ecosystem == "npm" else (pypi_survey, pypi_left_out)
    )
    return surveyed("left", base, patched, survey, left_out)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["package.json", "requirements.txt", "pyproject.toml"])
@pytest.mark.parametrize("fault", ["a broken link", "not UTF-8"])
class TestSurveyed:
    def test_what_the_base_commit_has_too_is_named(
        self, name: str, fault: str, tmp_path: Path
    ) -> None:
        kind = KINDS[name]
        trees = [
            elsewhere(tmp_path / tree, kind, name, fault, "test/fixtures")
            for tree in ("base", "patched")
        ]
        places, clause = found(kind, *trees)
        assert places
        assert clause == f"; can't be read here, as at the base commit: test/fixtures/{name}"

    def test_what_the_patch_made_unreadable_is_its_fault(
        self, name: str, fault: str, tmp_path: Path
    ) -> None:
        """Else a patch would get rid of a package by breaking the file that names it."""
        kind, path = KINDS[name], f"test/fixtures/{name}"
        files = {kind.good[0]: kind.good[1], path: kind.text}
        base = repository(tmp_path / "base", files)
        patched = elsewhere(tmp_path / "patched", kind, name, fault, "test/fixtures")
        with pytest.raises((RecipeError, RepositoryError), match=path):
            found(kind, base, patched)

    def test_what_counts_and_can_not_be_read_leaves_nothing_to_tell(
        self, name: str, fault: str, tmp_path: Path
    ) -> None:
        if fault == "a broken link" and name != "package.json":
            pytest.skip("nothing shows that it counts")
        kind = KINDS[name]
        lock = {"package-lock.json": _npm_lock()} if name == "package.json" else {}
        trees = [
            repository(tmp_path / tree, {**lock, name: kind.text}, it=(name, fault))
            for tree in ("base", "patched")
        ]
        places, why = found(kind, *trees)
        assert places is None
        assert f"'{name}'" in why


@dataclass(frozen=True)
class OfExamples:
    """A project among examples, of which something is left."""

    left: Left
    path: str = "examples/package-lock.json"

    def resolve(self, _advisory: Advisory, _patched: Mapping[str, str] = NO_TEXTS, /) -> ProjectFix:
        return ProjectFix({}, (), (self.left,))


def test_examples_whose_steps_were_not_all_tried_are_not_left_out(tmp_path: Path) -> None:
    repo = repository(tmp_path, {"package.json": NPM_MANIFEST})
    refused = Left(package="left", reason=RefusalReason.NO_FIXED_VERSION, sentence="It has none.")
    stopped = not_resolved(StoppedError("Stopped.", next_step="More time.", kind="time_limit"))
    open_one = refused.model_copy(update={"reason": stopped.reason, "kind": stopped.kind})
    record = advisory("npm", "left", [("0", "2.0.0")])
    for left, is_left_out in ((refused, True), (open_one, False)):
        project = OfExamples(left)
        found = Lenient(project, [project.path], npm_left_out(("left",), repo)).resolve(record)
        assert (found is None) is is_left_out
