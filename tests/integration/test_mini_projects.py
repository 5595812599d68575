"""Every mini-project is what it says: small, with its flaw, for the chain's model to fix.

That its reference fix is verified and its wrong ones are caught: test_eval_fixes.py.
"""

from pathlib import Path

import pytest

from fallback_audit.vocabulary import RefusalReason
from fallback_eval.fixes.projects import (
    MiniProject,
    load_project,
    load_projects,
)
from fallback_eval.fixes.report import HINTED
from fallback_tier.errors import InputError
from fallback_tier.gates.builtin.proof import ProofGate, check_proof
from fallback_tier.inspection import look_at
from fallback_tier.installed_plugins import clients_and_plugins
from fallback_tier.outcome import NotApplicable
from fallback_tier.planning import whose_code
from fallback_tier.planning.recipe_choice import ask_recipe
from fallback_tier.repo import RepoContext, Settings
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.sandbox.runners import BubblewrapSandbox
from tests.choice import a_choice
from tests.kinds import OfKind

ROOT = Path(__file__).parents[1] / "mini_projects"
PROJECTS = load_projects(ROOT)
NAMES = [project.name for project in PROJECTS]

each = pytest.mark.parametrize("project", PROJECTS, ids=NAMES)
CLIENTS, PLUGINS = clients_and_plugins()


def found(project: MiniProject, place: Path) -> RepoContext:
    project.commit_to(place / "repo", CLIENTS)
    repo = look_at(place / "repo", CLIENTS, Settings())
    plugin = PLUGINS[project.advisory.ecosystems[0]]
    return repo.model_copy(update={"manifests": plugin.manifests(repo.tracked_files)})


def test_there_are_twelve_in_two_languages() -> None:
    ecosystems = [project.advisory.ecosystems[0] for project in PROJECTS]
    assert sorted(ecosystems) == ["PyPI"] * 6 + ["npm"] * 6
    assert len({project.weakness for project in PROJECTS}) == 12
    assert len({project.advisory.id for project in PROJECTS}) == 12


@each
def test_a_small_plausible_package(project: MiniProject) -> None:
    files = [path for path in (project.folder / "repo").rglob("*") if path.suffix in {".js", ".py"}]
    source = [path for path in files if not {"test", "tests"} & set(path.parts[-2:-1])]
    lines = sum(path.read_text().count("\n") for path in source)
    assert 1 <= len(source) <= 3
    assert 20 <= lines <= 80
    assert (project.folder / "repo" / "README.md").is_file()
    assert max(len(edit.new.splitlines()) for edit in project.reference.edits) <= 8


@each
def test_the_repository_is_the_affected_package(project: MiniProject, tmp_path: Path) -> None:
    """So the chain goes from the recipe, which has nothing to bump, to the model."""
    plugin = PLUGINS[project.advisory.ecosystems[0]]
    repo = found(project, tmp_path)
    affected = whose_code(plugin, project.advisory, repo)
    decided = repo.model_copy(update={"affected": affected})
    selection = ask_recipe(plugin, project.advisory, decided)
    assert isinstance(selection, NotApplicable)
    assert selection.reason is RefusalReason.OWN_CODE


@pytest.mark.sandbox
@pytest.mark.parametrize(
    "project", a_choice(((project,) for project in PROJECTS), step=5), ids=NAMES
)
def test_the_proof_fails_at_the_base_commit(project: MiniProject, tmp_path: Path) -> None:
    output = check_proof(
        ProofGate(project.proof, PLUGINS[project.advisory.ecosystems[0]]),
        project.advisory,
        found(project, tmp_path),
        clients=SubprocessClients(),
        sandbox=BubblewrapSandbox(),
        workspace=tmp_path / "state",
    )
    for trouble in ("SyntaxError", "ImportError", "ModuleNotFound", "Cannot find module"):
        assert trouble not in output


@each
def test_both_kinds_of_wrong_fix_are_there(project: MiniProject) -> None:
    assert {wrong.gate for wrong in project.wrong} == {"proof", "tests"}


def test_the_same_project_is_the_same_commit(tmp_path: Path) -> None:
    commits = {found(PROJECTS[0], tmp_path / name).base_commit for name in ("a", "b")}
    assert len(commits) == 1


def test_bad_projects_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, check=OfKind("no_projects")):
        load_projects(tmp_path)
    with pytest.raises(InputError, check=OfKind("no_such_project"), match="'nope'"):
        load_projects(ROOT, ["nope"])
    for text in ("weakness = 1", "= broken", ""):
        (tmp_path / "project.toml").write_text(text)
        with pytest.raises(InputError, check=OfKind("not_a_project")):
            load_project(tmp_path)


@each
def test_no_prompt_template_gives_the_fix_away(project: MiniProject) -> None:
    """Templates have worked examples: none of their lines is of a project's flaw, fix or advisory."""
    template = PLUGINS[project.advisory.ecosystems[0]].instruction_template()
    fixes = [project.reference, *project.wrong]
    texts = [text for fix in fixes for edit in fix.edits for text in (edit.old, edit.new)]
    lines = {line.strip() for text in texts for line in text.splitlines()}
    assert [line for line in lines if len(line) >= 20 and line in template] == []


@each
def test_the_report_says_whose_kind_of_flaw_the_worked_example_has(project: MiniProject) -> None:
    template = PLUGINS[project.advisory.ecosystems[0]].instruction_template()
    assert "`unpack` joins names from an archive to a folder" in template
    assert (project.cwe == "CWE-22") == (project.name in HINTED)
