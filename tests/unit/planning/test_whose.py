"""Whose code is affected: one decision, before any recipe, lock or survey is looked at."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.vocabulary import AffectedCode, DecidedBy, RefusalReason
from fallback_plugins.npm.plugin import NpmEcosystem
from fallback_tier.advisory import AdvisorySet
from fallback_tier.affected import Affected
from fallback_tier.outcome import NotApplicable, RecipeSelection, Selected
from fallback_tier.planning import divisible_plan, whose_code
from fallback_tier.planning.recipe_choice import ask_recipe
from fallback_tier.planning.whose import settled
from fallback_tier.repo import Settings
from tests.unit.shared.recipes import FakeClients, advisory, repository

RECORD = advisory("npm", "lib", [("0", "1.2.4")])
OURS = "https://github.com/team/lib"


@dataclass(frozen=True)
class Npm(NpmEcosystem):
    """The real plugin, but for what the registry says."""

    theirs: tuple[str, ...] = ()
    asked: list[str] = field(default_factory=list)

    def source_links(self, package: str) -> tuple[str, ...]:
        self.asked.append(package)
        return self.theirs


def manifest(name: str = "lib", version: str | None = "1.2.3", **more: Any) -> str:
    return json.dumps({"name": name, **({"version": version} if version else {}), **more})


def decided(
    tmp_path: Path,
    files: dict[str, str],
    *theirs: str,
    settings: Settings | None = None,
    tags: tuple[str, ...] = (),
) -> tuple[Affected, RecipeSelection]:
    plugin = Npm(FakeClients(), theirs)
    repo = repository(tmp_path, files)
    if settings is not None:
        repo = repo.model_copy(update={"settings": settings})
    affected = whose_code(plugin, RECORD, repo)
    reported = repo.model_copy(update={"affected": affected})
    return affected, ask_recipe(plugin, RECORD, reported, tags=lambda: tags)


def reason(selection: RecipeSelection) -> RefusalReason | None:
    return selection.reason if isinstance(selection, NotApplicable) else None


def test_an_example_that_pins_the_vulnerable_version_is_not_what_is_affected(
    tmp_path: Path,
) -> None:
    """The false "fixed": the copy would be raised, and the vulnerable source left as it is."""
    pinned = manifest("example", dependencies={"lib": "1.2.3"})
    files = {"package.json": manifest(), "example/package.json": pinned}
    affected, selection = decided(tmp_path, files)
    assert affected.code is AffectedCode.OWN
    assert reason(selection) is RefusalReason.OWN_CODE


def test_without_the_decision_the_copy_would_be_raised(tmp_path: Path) -> None:
    """The action removed: the recipe alone takes the example for what is to be fixed."""
    pinned = manifest("example", dependencies={"lib": "1.2.3"})
    repo = repository(tmp_path, {"package.json": manifest(), "example/package.json": pinned})
    assert isinstance(ask_recipe(Npm(FakeClients()), RECORD, repo), Selected)


def test_a_copy_below_a_development_dependency_is_not_what_is_affected(tmp_path: Path) -> None:
    lock = {
        "lockfileVersion": 3,
        "packages": {
            "": {"name": "lib", "devDependencies": {"tool": "1.0.0"}},
            "node_modules/tool": {"version": "1.0.0", "dependencies": {"lib": "^1.0.0"}},
            "node_modules/lib": {"version": "1.2.0", "dev": True},
        },
    }
    files = {
        "package.json": manifest(devDependencies={"tool": "1.0.0"}),
        "package-lock.json": json.dumps(lock),
    }
    affected, selection = decided(tmp_path, files)
    assert affected.code is AffectedCode.OWN
    assert reason(selection) is RefusalReason.OWN_CODE


def test_a_project_that_uses_the_package_has_a_dependency(tmp_path: Path) -> None:
    files = {"package.json": manifest("app", dependencies={"lib": "1.2.3"})}
    affected, selection = decided(tmp_path, files)
    assert affected.code is AffectedCode.DEPENDENCY
    assert isinstance(selection, Selected)


@pytest.mark.parametrize(
    ("facts", "theirs"),
    [
        ({"repository": "https://github.com/team/billing"}, (OURS,)),
        ({"version": None, "private": True}, ()),
    ],
)
def test_a_project_that_merely_shares_the_name_has_a_dependency(
    tmp_path: Path, facts: dict[str, Any], theirs: tuple[str, ...]
) -> None:
    """It installs a package of its own name, and is not published, or from another source."""
    files = {"package.json": manifest(dependencies={"lib": "1.2.3"}, **facts), "index.js": ""}
    affected, selection = decided(tmp_path, files, *theirs)
    assert affected.code is AffectedCode.DEPENDENCY
    assert isinstance(selection, Selected)


def test_one_that_installs_its_own_name_by_mistake_is_a_question_or_the_source(
    tmp_path: Path,
) -> None:
    files = {"package.json": manifest(dependencies={"lib": "1.2.3"})}
    affected, selection = decided(tmp_path / "alone", files)
    assert affected.code is AffectedCode.UNCLEAR
    assert reason(selection) is RefusalReason.WHOSE_CODE_UNCLEAR
    known = {"package.json": manifest(dependencies={"lib": "1.2.3"}, repository="team/lib")}
    affected, _ = decided(tmp_path / "agreed", known, OURS)
    assert (affected.code, affected.decided_by) == (AffectedCode.OWN, DecidedBy.REGISTRY)


def test_what_may_be_the_source_is_a_question(tmp_path: Path) -> None:
    """A vendored copy has the flaw; so may an example of that name."""
    files = {
        "package.json": manifest("app", dependencies={"lib": "1.2.3"}),
        "vendor/lib/package.json": manifest(),
        "vendor/lib/index.js": "",
    }
    affected, selection = decided(tmp_path, files)
    assert affected.code is AffectedCode.UNCLEAR
    assert isinstance(selection, NotApplicable)
    assert "vendor/lib/package.json" in selection.sentence
    reported = Settings(whose_code=AffectedCode.DEPENDENCY)
    _, selection = decided(tmp_path / "told", files, settings=reported)
    assert isinstance(selection, Selected)


def test_one_that_shares_the_name_and_has_another_source_is_a_question(tmp_path: Path) -> None:
    files = {"package.json": manifest(repository="https://github.com/team/billing")}
    affected, selection = decided(tmp_path, files, OURS)
    assert (affected.code, affected.decided_by) == (AffectedCode.UNCLEAR, DecidedBy.REGISTRY)
    assert isinstance(selection, NotApplicable)
    assert selection.reason is RefusalReason.WHOSE_CODE_UNCLEAR
    assert selection.reason.ends_chain
    assert "--own-code" in selection.sentence
    assert "billing" in selection.sentence


@pytest.mark.parametrize(
    "link",
    [
        "git+https://github.com/team/lib.git",
        "git@github.com:fork/lib.git",
        "me/lib",
        "https://gitlab.com/moved/lib/-/issues",
        "https://github.com/Team/LIB#readme",
    ],
)
def test_a_fork_or_a_moved_repository_is_the_source(tmp_path: Path, link: str) -> None:
    affected, _ = decided(tmp_path, {"package.json": manifest(repository=link)}, OURS)
    assert (affected.code, affected.decided_by) == (AffectedCode.OWN, DecidedBy.REGISTRY)


@pytest.mark.parametrize("links", [{}, {"repository": "https://github.com/x/other"}])
def test_a_registry_that_says_nothing_contradicts_nothing(
    tmp_path: Path, links: dict[str, str]
) -> None:
    affected, _ = decided(tmp_path, {"package.json": manifest(**links)})
    assert (affected.code, affected.decided_by) == (AffectedCode.OWN, DecidedBy.MANIFEST)


def test_offline_and_where_no_client_is_to_run_no_registry_is_asked(tmp_path: Path) -> None:
    plugin = Npm(FakeClients(), (OURS,))
    repo = repository(tmp_path, {"package.json": manifest(repository="x/other")})
    offline = repo.model_copy(update={"settings": Settings(offline=True)})
    assert whose_code(plugin, RECORD, offline).code is AffectedCode.OWN
    assert whose_code(plugin, RECORD, repo, ask_registry=False).code is AffectedCode.OWN
    given = AdvisorySet(advisories=(RECORD,))
    divisible_plan(given, repo, {"npm": plugin}, resolve=False)
    assert plugin.asked == []
    divisible_plan(given, repo, {"npm": plugin})
    assert plugin.asked == ["lib"]


def test_one_affected_member_of_a_monorepo_is_enough(tmp_path: Path) -> None:
    files = {
        "package.json": manifest("root", None, private=True, workspaces=["packages/*"]),
        "packages/lib/package.json": manifest(),
        "packages/web/package.json": manifest("web", dependencies={"lib": "1.2.3"}),
    }
    affected, selection = decided(tmp_path, files)
    assert [package.manifest for package in affected.own] == ["packages/lib/package.json"]
    assert reason(selection) is RefusalReason.OWN_CODE


@pytest.mark.parametrize("version", ["1.2.4", "2.0.0"])
def test_a_checkout_at_a_fixed_version_is_not_affected(tmp_path: Path, version: str) -> None:
    files = {"package.json": manifest(version=version)}
    _, selection = decided(tmp_path, files, tags=("v1.0.0", f"v{version}", "nightly"))
    assert isinstance(selection, NotApplicable)
    assert selection.reason is RefusalReason.NOT_AFFECTED
    assert "--own-code" in selection.sentence


@pytest.mark.parametrize(
    "tags",
    [
        (),
        ("v1.2.3",),
        ("nightly",),
        ("other-1.2.4", "v1.2.3"),
        ("@other/lib@1.2.4",),
        ("v7.1.0", "release-2024.01.15"),
    ],
)
def test_a_number_that_was_raised_before_its_release_proves_nothing(
    tmp_path: Path, tags: tuple[str, ...]
) -> None:
    """The manifest has the fixed version already, and no release in this commit does."""
    _, selection = decided(tmp_path, {"package.json": manifest(version="1.2.4")}, tags=tags)
    assert reason(selection) is RefusalReason.OWN_CODE


@pytest.mark.parametrize("tag", ["1.2.4", "v1.2.4", "lib@1.2.4", "lib-v1.2.4", "release-1.2.4"])
def test_a_release_is_told_by_its_tag(tmp_path: Path, tag: str) -> None:
    _, selection = decided(tmp_path, {"package.json": manifest(version="1.2.4")}, tags=(tag,))
    assert reason(selection) is RefusalReason.NOT_AFFECTED


def test_a_proof_or_a_person_is_believed_above_a_version(tmp_path: Path) -> None:
    files = {"package.json": manifest(version="2.0.0")}
    affected, _ = decided(tmp_path, files)
    tags = lambda: ("v2.0.0",)  # noqa: E731
    by_version = settled(RECORD, "npm", affected, tags=tags)
    assert by_version is not None
    assert by_version.reason is RefusalReason.NOT_AFFECTED
    by_proof = settled(RECORD, "npm", affected, tags=tags, believe_version=False)
    assert by_proof is not None
    assert by_proof.reason is RefusalReason.OWN_CODE
    reported = Settings(whose_code=AffectedCode.OWN)
    _, selection = decided(tmp_path / "told", files, settings=reported, tags=("v2.0.0",))
    assert reason(selection) is RefusalReason.OWN_CODE


@pytest.mark.parametrize("version", [None, "0.0.0-development"])
def test_a_version_that_nobody_wrote_proves_nothing(tmp_path: Path, version: str | None) -> None:
    files = {"package.json": manifest(version=version)}
    _, selection = decided(tmp_path, files, tags=("v2.0.0",))
    assert reason(selection) is RefusalReason.OWN_CODE


def test_a_person_overrules_the_names(tmp_path: Path) -> None:
    uses = {"package.json": manifest("app", dependencies={"lib": "1.2.3"})}
    own = Settings(whose_code=AffectedCode.OWN)
    affected, selection = decided(tmp_path / "own", uses, settings=own)
    assert (affected.code, affected.decided_by) == (AffectedCode.OWN, DecidedBy.PERSON)
    assert reason(selection) is RefusalReason.OWN_CODE
    is_it = {"package.json": manifest(devDependencies={"lib": "1.0.0"})}
    other = Settings(whose_code=AffectedCode.DEPENDENCY)
    affected, selection = decided(tmp_path / "other", is_it, settings=other)
    assert (affected.code, affected.decided_by) == (AffectedCode.DEPENDENCY, DecidedBy.PERSON)
    assert isinstance(selection, Selected)
