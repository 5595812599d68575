"""The Python ladder with the real uv, over a registry of made-up packages on loopback."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fallback_audit.vocabulary import BlockerKind, LadderStep, ProofLevel, RefusalReason
from fallback_plugins.pypi import build_ecosystem
from fallback_plugins.pypi.resolving.registry import Releases
from fallback_plugins.pypi.resolving.resolutions import resolve
from fallback_plugins.pypi.resolving.uv_client import UvClient, Wanted
from fallback_tier.advisory import Advisory, bundle
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import RecipeResult
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.sandbox.clients import SubprocessClients
from tests.kinds import OfKind
from tests.registry import Registry, Universe, serve
from tests.unit.pypi.pypi_files import pyproject
from tests.unit.shared.recipes import advisory, after, fix, repository

#: As setuptools writes it: what is required here, with an extra, and elsewhere.
STALE = """fine
bad>=0.9,<1.1

[more]
bad>=9

[:python_version < "3"]
bad>=9
"""


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    universe = (
        Universe()
        .pypi("bad", "1.0")
        .pypi("bad", "1.1", yanked="broken build")
        .pypi("bad", "1.2")
        .pypi("bad", "2.0")
        .pypi("top", "1.0", ["bad==1.0"])
        .pypi("top", "1.5", ["bad==1.0"])
        .pypi("top", "2.0", ["bad>=1.2,<2"])
        .pypi("top", "3.0", ["bad>=2"])
        .pypi("twin", "1.0", ["bad<1.1"])
        .pypi("twin", "1.1", ["bad<1.3"])
        .pypi("stuck", "1.0", ["bad<1.1"])
        .pypi("drops", "1.0", ["bad==1.0"])
        .pypi("grows", "1.0", ["bad==1.0"])
        .pypi("grows", "2.0", ["bad", "fine"])
        .pypi("drops", "1.1")
        .pypi("trades", "1.0", ["bad==1.0"])
        .pypi("trades", "2.0", ["worse==1.0"])
        .pypi("trades", "3.0", ["fine"])
        .pypi("worse", "1.0")
        .pypi("fine", "1.0")
        .pypi("local", "1.0+cpu")
        .pypi("local", "1.1")
        .pypi("local", "1.1+cpu")
        .pypi("local", "1.2")
        .pypi("early", "1.0", ["pre"])
        .pypi("pre", "1.0")
        .pypi("pre", "1.1rc1")
        .pypi("soon", "1.0")
        .pypi("soon", "1.1rc1")
        .pypi("soon", "1.1")
        .pypi("lines", "1.0")
        .pypi("lines", "1.1")
        .pypi("lines", "2.0")
        .pypi("lines", "2.1")
        .pypi("built", "1.0", sdist_only=True)
        .pypi("stale", "1.0", sdist_only=True, files={"stale.egg-info/requires.txt": STALE})
    )
    with serve(universe) as registry:
        yield registry


@pytest.fixture
def plugin(registry: Registry) -> EcosystemPlugin:
    return build_ecosystem(SubprocessClients(os.environ | registry.environ))


@pytest.fixture
def uv(registry: Registry) -> UvClient:
    return UvClient(SubprocessClients(os.environ | registry.environ))


BAD = advisory("PyPI", "bad", [("0", "1.1")])
WORSE = advisory("PyPI", "worse", [("0", None)]).model_copy(update={"id": "WORSE"})


def fixed(
    plugin: EcosystemPlugin, root: Path, files: Mapping[str, str], record: Advisory = BAD
) -> RecipeResult:
    return fix(plugin, record, repository(root, files))


# --- Releases -------------------------------------------------------------------------------------


def test_what_the_registry_says_of_releases(uv: UvClient) -> None:
    assert uv.fault_of("bad", "1.0") is None
    assert uv.fault_of("bad", "1.1") == "is yanked (broken build)"
    assert uv.fault_of("bad", "1.1.5") == "was never published"
    # Nothing can be said of a release that has no wheel: it is not called unusable.
    assert uv.fault_of("built", "1.0") is None
    assert uv.next_release("bad", "1.0") == "1.2"
    with pytest.raises(RecipeError) as caught:
        uv.fault_of("nowhere", "1.0")
    (blocker,) = caught.value.blockers
    assert (blocker.kind, blocker.package, blocker.status) == (BlockerKind.REGISTRY, "nowhere", 404)


def test_a_yanked_fix_is_passed_over(plugin: EcosystemPlugin, tmp_path: Path) -> None:
    result = fixed(plugin, tmp_path, {"requirements.txt": "bad==1.0\n"})
    assert after(result, "requirements.txt") == "bad==1.2\n"
    assert result.proof_level is ProofLevel.PINS
    assert result.notes == ("bad 1.1 is yanked (broken build): 1.2 is looked at in its place.",)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("pyproject.toml", '[tool.poetry.dependencies.bad]\nversion = "{}"\n'),
        ("pyproject.toml", '[tool.poetry.dependencies]\nbad.version = "{}"\n'),
        ("Pipfile", '[packages.bad]\nversion = "=={}"\n'),
        ("Pipfile", '[packages]\nbad.version = "=={}"\n'),
    ],
)
def test_a_dotted_key_declares_a_package(
    plugin: EcosystemPlugin, tmp_path: Path, path: str, text: str
) -> None:
    result = fixed(plugin, tmp_path, {path: text.format("1.0")})
    assert after(result, path) == text.format("1.2")


@pytest.mark.parametrize("lines", ["", "bad\n", "bad==1.0\n", "twin==1.1\n"])
def test_a_vendored_folders_own_declaration_is_named(
    plugin: EcosystemPlugin, tmp_path: Path, lines: str
) -> None:
    """Other people's code is not changed: the refusal has its file, not the one that installs it."""
    files = {
        "requirements.txt": f"{lines}-e ./vendor/lib\n",
        "vendor/lib/pyproject.toml": pyproject("bad==1.0"),
    }
    with pytest.raises(RecipeError) as caught:
        fixed(plugin, tmp_path, files)
    assert caught.value.reason is RefusalReason.BLOCKED_BY_CONSTRAINT
    assert "vendor/lib/pyproject.toml requires bad ==1.0" in caught.value.problem
    assert caught.value.next_step == "Raise the declaration of bad in vendor/lib/pyproject.toml."


def test_final_release_is_chosen_over_the_candidate_that_a_record_names(
    plugin: EcosystemPlugin, tmp_path: Path
) -> None:
    record = advisory("PyPI", "soon", [("0", "1.1rc1")])
    result = fixed(plugin, tmp_path, {"requirements.txt": "soon==1.0\n"}, record)
    assert after(result, "requirements.txt") == "soon==1.1\n"


def test_a_fix_that_was_never_published_is_no_target(
    plugin: EcosystemPlugin, tmp_path: Path
) -> None:
    record = advisory("PyPI", "soon", [("0", "1.9")])
    with pytest.raises(RecipeError, match=r"soon 1\.9 ") as caught:
        fixed(plugin, tmp_path, {"requirements.txt": "soon==1.0\n"}, record)
    assert caught.value.reason is RefusalReason.NO_FIXED_VERSION


EXTRAS = """[project]
name = "app"
version = "1"
[project.optional-dependencies]
old = ["lines==OLD"]
new = ["lines==NEW"]
"""
FORKS = "lines==OLD ; python_version < '3.11'\nlines==NEW ; python_version >= '3.11'\n"


@pytest.mark.parametrize(
    ("path", "text"), [("pyproject.toml", EXTRAS), ("requirements.txt", FORKS)]
)
@pytest.mark.parametrize("old", ["1.0", "1.1"])
def test_each_pin_goes_to_the_fix_of_its_own_line(
    plugin: EcosystemPlugin, tmp_path: Path, path: str, text: str, old: str
) -> None:
    record = advisory("PyPI", "lines", [("0", "1.1"), ("2.0", "2.1")])
    files = {path: text.replace("OLD", old).replace("NEW", "2.0")}
    result = fixed(plugin, tmp_path, files, record)
    assert after(result, path) == text.replace("OLD", "1.1").replace("NEW", "2.1")
    moves = [(move.before, move.after) for move in result.moves]
    assert moves == [(("1.0",), "1.1"), (("2.0",), "2.1")][old == "1.1" :]


@pytest.mark.parametrize(("fixed", "chosen"), [("1.1", "1.1+cpu"), ("1.2", "1.2")])
def test_a_local_build_stays_one_or_its_loss_is_said(
    uv: UvClient, plugin: EcosystemPlugin, fixed: str, chosen: str, tmp_path: Path
) -> None:
    record = advisory("PyPI", "local", [("0", fixed)])
    asked = Releases(record, uv)
    assert asked.lowest_safe("local", "1.0+cpu") == chosen
    lost = (
        "local 1.2+cpu was never published: 1.2 has no local label cpu, and may be another build."
    )
    assert asked.notes == ([] if "+" in chosen else [lost])
    # What can't be asked about keeps the label that it has.
    assert Releases(record, None).lowest_safe("local", "1.0+cpu") == f"{fixed}+cpu"
    repo = repository(tmp_path, {"requirements.txt": "local==1.0+cpu\nfine>=1\n"})
    assert after(fix(plugin, record, repo), "requirements.txt") == f"local=={chosen}\nfine>=1\n"


def test_many_releases_are_asked_about_together(uv: UvClient, registry: Registry) -> None:
    releases = [("bad", "1.1"), ("top", "2.0"), ("twin", "1.1"), ("nowhere", "1"), ("fine", "1.0")]
    assert uv.yanked_of(releases[:3]) == {("bad", "1.1"): "is yanked (broken build)"}
    record = advisory("PyPI", "top", [("0", "2.0")])
    asked = Releases(record, uv)
    asked.look_up(releases[:3])
    before = len(registry.requests)
    assert asked.lowest_safe("top", "1.0") == "2.0"
    assert len(registry.requests) == before
    # One that is not there costs the others nothing but the halving.
    halved = Releases(record, uv)
    halved.look_up(releases)
    assert halved.lowest_safe("top", "1.0") == "2.0"
    assert halved.notes == []


def test_an_unpublished_fix_too(plugin: EcosystemPlugin, tmp_path: Path) -> None:
    record = advisory("PyPI", "bad", [("0", "1.0.5"), ("1.2", "1.3")])
    result = fixed(plugin, tmp_path, {"requirements.txt": "bad>=1.0\n"}, record)
    # 1.1 is yanked, 1.2 affected, 1.3 unpublished.
    assert after(result, "requirements.txt") == "bad>=2.0\n"


def test_a_record_without_a_fixed_version(plugin: EcosystemPlugin, tmp_path: Path) -> None:
    events = [{"introduced": "0"}, {"last_affected": "1.0"}]
    record = advisory("PyPI", "bad", ranges=[{"type": "ECOSYSTEM", "events": events}])
    repo = repository(tmp_path, {"requirements.txt": "bad==1.0\n"})
    result = plugin.apply(plugin.bump("bad", "1.2"), record, repo)
    assert after(result, "requirements.txt") == "bad==1.2\n"
    assert fix(plugin, record, repo).changes == result.changes


def test_a_registry_that_is_away_stops_no_fix_by_text(registry: Registry, tmp_path: Path) -> None:
    environ = os.environ | registry.environ | {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple"}
    plugin = build_ecosystem(SubprocessClients(environ))
    result = fixed(plugin, tmp_path, {"requirements.txt": "bad==1.0\n"})
    assert after(result, "requirements.txt") == "bad==1.1\n"
    asked, unknown = result.notes
    assert asked.startswith("The registry could not be asked about yanked releases.")
    assert unknown.startswith("What requirements.txt brings in is unknown.")


def test_a_set_with_an_index_of_its_own(plugin: EcosystemPlugin, tmp_path: Path) -> None:
    text = "--extra-index-url https://packages.invalid/simple\nbad==1.0\n"
    result = fixed(plugin, tmp_path / "a", {"requirements.txt": text})
    assert after(result, "requirements.txt") == text.replace("1.0", "1.1")
    assert result.notes == (
        "requirements.txt names its own index, so yanked releases could not be asked about.",
        (
            "What requirements.txt brings in is unknown. requirements.txt was not resolved. "
            "requirements.txt names its own index, which is not asked."
        ),
    )
    # Nor is it asked what such a set would become.
    open_set = repository(tmp_path / "b", {"requirements.txt": text.replace("bad", "top")})
    with pytest.raises(RecipeError, match=r"requirements\.txt") as caught:
        fix(plugin, BAD, open_set)
    assert caught.value.reason is RefusalReason.UNKNOWN


def test_new_hashes_are_those_of_every_file(
    plugin: EcosystemPlugin, registry: Registry, tmp_path: Path
) -> None:
    text = "bad==1.0 \\\n    --hash=sha256:aa\n"
    result = fixed(plugin, tmp_path, {"requirements.txt": text})
    sha256 = registry.universe.pypi_packages["bad"]["bad-1.2-py3-none-any.whl"].sha256
    assert after(result, "requirements.txt") == f"bad==1.2 \\\n    --hash=sha256:{sha256}\n"


# --- Transitive versions --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("top==1.0\n", "top==2.0\n"),
        ("top~=1.0  # why\n", "top~=2.0  # why\n"),
        # Both have to move, and 3.0 of one would not go with what the other allows.
        ("top==1.0\ntwin==1.0\n", "top==2.0\ntwin==1.1\n"),
        # Gone from the tree is as good.
        ("drops==1.0\nfine\n", "drops==1.1\nfine\n"),
    ],
)
def test_the_lowest_parents_whose_tree_is_clear(
    plugin: EcosystemPlugin, tmp_path: Path, old: str, new: str
) -> None:
    result = fixed(plugin, tmp_path, {"requirements.txt": old})
    assert after(result, "requirements.txt") == new
    assert result.proof_level is ProofLevel.RESOLVED_TREE
    (move,) = result.moves
    assert (move.package, move.step, move.before) == ("bad", LadderStep.PARENT_BUMP, ("1.0",))
    (declined,) = move.declined  # there is no lock to refresh
    assert declined.step is LadderStep.DIRECT_BUMP
    assert declined.reason == "requirements.txt does not declare bad."
    assert "bad 1.0" in result.tree_before
    assert "bad 1.0" not in result.tree_after
    assert result.cleared
    assert all(path.path[-1] == "bad 1.0" for path in result.cleared)


def test_a_pyproject_is_resolved_too(plugin: EcosystemPlugin, tmp_path: Path) -> None:
    files = {"pyproject.toml": pyproject(more='[dependency-groups]\ndev = ["top<2"]\n')}
    result = fixed(plugin, tmp_path, files)
    assert after(result, "pyproject.toml") == files["pyproject.toml"].replace("<2", "<3")
    assert result.proof_level is ProofLevel.RESOLVED_TREE


def test_nothing_affected_comes_in_with_a_parent(plugin: EcosystemPlugin, tmp_path: Path) -> None:
    both = bundle([BAD, WORSE])
    result = fixed(plugin, tmp_path, {"requirements.txt": "trades==1.0\n"}, both)
    assert after(result, "requirements.txt") == "trades==3.0\n"
    # By itself, the lower one would do.
    alone = fixed(plugin, tmp_path, {"requirements.txt": "trades==1.0\n"})
    assert after(alone, "requirements.txt") == "trades==2.0\n"


def test_a_line_for_the_package_itself_where_no_parent_has_to_move(
    plugin: EcosystemPlugin, tmp_path: Path
) -> None:
    """The only fix is a pre-release: nobody takes one unasked."""
    record = advisory("PyPI", "pre", [("0", "1.1rc1")])
    result = fixed(plugin, tmp_path, {"requirements.txt": "early>=1.0"}, record)
    assert after(result, "requirements.txt") == "early>=1.0\npre>=1.1rc1\n"
    (move,) = result.moves
    assert move.step is LadderStep.OVERRIDE
    assert move.after == "1.1rc1"
    pinned = fixed(plugin, tmp_path, {"requirements.txt": "early==1.0\r\n"}, record)
    assert after(pinned, "requirements.txt") == "early==1.0\r\npre==1.1rc1\r\n"
    # A major version further is another promise.
    far = advisory("PyPI", "pre", [("0", "2.0rc1")])
    with pytest.raises(RecipeError):
        fixed(plugin, tmp_path, {"requirements.txt": "early==1.0\n"}, far)


def test_the_constraint_in_the_way_is_named(plugin: EcosystemPlugin, tmp_path: Path) -> None:
    files = {"requirements.txt": "top==1.0\nstuck\n"}
    with pytest.raises(RecipeError) as caught:
        fixed(plugin, tmp_path, files)
    assert caught.value.reason is RefusalReason.BLOCKED_BY_CONSTRAINT
    assert caught.value.problem == (
        "stuck 1.0 in requirements.txt requires bad <1.1, which does not admit 1.1."
    )


def test_of_several_as_many_as_can_be(plugin: EcosystemPlugin, tmp_path: Path) -> None:
    pre = advisory("PyPI", "pre", [("0", "1.1rc1")]).model_copy(update={"id": "PRE"})
    files = {"requirements.txt": "trades==2.0\nearly==1.0\n"}
    drop = advisory("PyPI", "fine", [("0", None)]).model_copy(update={"id": "FINE"})
    result = fixed(plugin, tmp_path, files, bundle([WORSE, pre, drop]))
    # trades 3.0 would bring in "fine", which is affected too.
    assert after(result, "requirements.txt") == "trades==2.0\nearly==1.0\npre==1.1rc1\n"
    assert [(item.package, item.reason) for item in result.left] == [
        ("worse", RefusalReason.NO_FIXED_VERSION)
    ]


OTHER = advisory("PyPI", "other", [("0", "1")]).model_copy(update={"id": "OTHER"})


def test_a_pin_that_does_not_go_with_the_rest_takes_it_along(
    plugin: EcosystemPlugin, tmp_path: Path
) -> None:
    both = bundle([BAD, OTHER])
    files = {"requirements.txt": "twin==1.0\nbad==1.0\n"}
    result = fixed(plugin, tmp_path / "a", files, both)
    assert after(result, "requirements.txt") == "twin==1.1\nbad==1.2\n"
    (move,) = result.moves
    assert (move.step, move.after, move.raised) == (LadderStep.DIRECT_BUMP, "1.2", ("twin 1.1",))
    with pytest.raises(RecipeError, match=r"stuck 1\.0 .*requirements\.txt .*bad <1\.1"):
        fixed(plugin, tmp_path / "b", {"requirements.txt": "stuck\nbad==1.0\n"}, both)


def test_a_resolved_tree_without_the_package(plugin: EcosystemPlugin, tmp_path: Path) -> None:
    repo = repository(tmp_path, {"requirements.txt": "fine\n"})
    with pytest.raises(RecipeError) as caught:
        fix(plugin, BAD, repo)
    assert caught.value.reason is RefusalReason.NOT_AFFECTED
    assert "unknown" not in caught.value.problem


def test_what_uv_cant_resolve_is_said_to_be_unknown(
    plugin: EcosystemPlugin, tmp_path: Path
) -> None:
    files = {"requirements.txt": "built==1.0\n"}
    with pytest.raises(RecipeError, match=r"built 1\.0 ") as caught:
        fixed(plugin, tmp_path / "a", files)
    assert caught.value.reason is RefusalReason.UNKNOWN
    assert [item.path for item in caught.value.unread] == ["requirements.txt"]
    # It stops no fix of what is pinned elsewhere.
    result = fixed(plugin, tmp_path / "b", files | {"sub/requirements.txt": "bad==1.0\n"})
    assert after(result, "sub/requirements.txt") == "bad==1.2\n"
    assert any("requirements.txt brings in is unknown" in note for note in result.notes)


def test_nothing_of_the_repository_but_requirements_reaches_uv(
    plugin: EcosystemPlugin, registry: Registry, tmp_path: Path
) -> None:
    (tmp_path / "repo").mkdir()
    for line in (
        "-e ./x",
        "--find-links /etc",
        "bad @ file:///etc/x",
        "${HOME}==1",
        "./x.whl",
        "-r base.txt",
    ):
        repo = repository(tmp_path / "repo", {"requirements.txt": f"top\n{line}\n"})
        with pytest.raises(RecipeError, match=r"requirements\.txt"):
            fix(plugin, advisory("PyPI", "other", [("0", "1")]), repo)
    # The alarm works: without such a line the set is resolved.
    repo = repository(tmp_path / "repo", {"requirements.txt": "top\n--pre\n"})
    with pytest.raises(RecipeError) as caught:
        fix(plugin, advisory("PyPI", "other", [("0", "1")]), repo)
    assert "unknown" not in caught.value.problem


def test_the_tree_that_uv_tells(uv: UvClient) -> None:
    wanted = Wanted(("top<2", "twin ; python_version > '3'"), ("twin<1.1",))
    tree = resolve(uv, "r.txt", wanted).tree
    assert tree.listing() == ("bad 1.0 bad 1.0\ntop 1.5 top 1.5\ntwin 1.0 twin 1.0\n")
    (bad,) = tree.of("bad")
    assert {dependent.name for dependent, _ in tree.dependents(bad.key)} == {"top", "twin"}
    (root,) = tree.roots
    assert {(ask.name, ask.spec) for ask in root.asks} == {("top", "<2"), ("twin", "")}


# --- sets of pins -----------------------------------------------------------------------------------

_COMPILED = "# This file is autogenerated by pip-compile with Python 3.11\n"


@pytest.mark.parametrize("head", ["", _COMPILED])
def test_pins_that_hold_a_fix_back_move_along(
    plugin: EcosystemPlugin, tmp_path: Path, head: str
) -> None:
    """twin 1.0 asks for bad<1.1: both lines have to change, or nothing installs."""
    files = {"requirements.txt": f"{head}bad==1.0\nfine==1.0\ntwin==1.0\n"}
    result = fixed(plugin, tmp_path, files)
    assert after(result, "requirements.txt") == f"{head}bad==1.2\nfine==1.0\ntwin==1.1\n"
    (move,) = result.moves
    assert (move.package, move.step, move.raised) == ("bad", LadderStep.DIRECT_BUMP, ("twin 1.1",))
    assert result.proof_level is ProofLevel.RESOLVED_TREE


def test_pins_that_cannot_go_together_are_refused_when_planned(
    plugin: EcosystemPlugin, tmp_path: Path
) -> None:
    files = {"requirements.txt": f"{_COMPILED}bad==1.0\nstuck==1.0\n"}
    with pytest.raises(RecipeError, match=r"stuck 1\.0 .*requirements\.txt .*bad <1\.1"):
        fixed(plugin, tmp_path, files)


def test_a_closed_set_is_not_given_what_it_does_not_name(
    plugin: EcosystemPlugin, tmp_path: Path
) -> None:
    files = {"requirements.txt": f"{_COMPILED}bad==1.0\ngrows==1.0\n"}
    with pytest.raises(RecipeError, match=r"fine .* requirements\.txt"):
        fixed(plugin, tmp_path, files)
    # An open one lets the installer see to it.
    result = fixed(plugin, tmp_path, {"requirements.txt": "bad==1.0\ngrows==1.0\n"})
    assert "grows==2.0" in after(result, "requirements.txt")


def test_a_bump_that_brings_in_what_a_closed_set_does_not_name_is_refused(
    plugin: EcosystemPlugin, tmp_path: Path
) -> None:
    record = advisory("PyPI", "grows", [("0", "2.0")])
    files = {"requirements.txt": f"{_COMPILED}bad==1.0\ngrows==1.0\n"}
    with pytest.raises(RecipeError, check=OfKind("not_named"), match=r"^fine ") as caught:
        fixed(plugin, tmp_path, files, record)
    assert caught.value.reason is RefusalReason.MANIFEST_MISSING


@pytest.mark.parametrize(
    ("asked", "raised"),
    [
        ("bad", None),
        ("bad<2", None),
        ("bad~=1.0", None),
        ("bad>=1.0", None),
        ("bad==1.0", "bad==1.2"),
        ("bad<1.1", "bad<1.3"),
    ],
)
def test_what_was_compiled_decides_and_its_source_only_has_to_admit_it(
    plugin: EcosystemPlugin, tmp_path: Path, asked: str, raised: str | None
) -> None:
    compiled = f"{_COMPILED}bad=={{}}\n    # via -r requirements.in\n"
    files = {"requirements.in": f"{asked}\n", "requirements.txt": compiled.format("1.0")}
    texts = {it.path: it.after for it in fixed(plugin, tmp_path, files).changes}
    wanted = {"requirements.txt": compiled.format("1.2")}
    assert texts == (wanted | {"requirements.in": f"{raised}\n"} if raised else wanted)


def test_a_source_that_admits_what_moves_along_stays_too(
    plugin: EcosystemPlugin, tmp_path: Path
) -> None:
    """twin 1.0 asks for bad<1.1: both pins move, and what they were compiled from asks for both."""
    files = {
        "requirements.in": "bad>=1.0\ntwin>=1.0\n",
        "requirements.txt": f"{_COMPILED}bad==1.0\ntwin==1.0\n",
    }
    texts = {it.path: it.after for it in fixed(plugin, tmp_path, files).changes}
    assert texts == {"requirements.txt": f"{_COMPILED}bad==1.2\ntwin==1.1\n"}


@pytest.mark.parametrize("more", ["", "built==1.0\n"])
def test_a_pin_without_a_wheel_that_excludes_the_bump_is_read(
    plugin: EcosystemPlugin, tmp_path: Path, more: str
) -> None:
    """uv can't hold it against the bump, since it may build nothing: pip would install neither."""
    files = {"requirements.txt": f"bad==1.0\n{more}stale==1.0\n"}
    with pytest.raises(RecipeError, match=r"stale 1\.0 .*requirements\.txt .*bad <1\.1") as caught:
        fixed(plugin, tmp_path, files)
    assert caught.value.reason is RefusalReason.BLOCKED_BY_CONSTRAINT


def test_a_pin_that_does_not_tell_what_it_asks_for_is_named(
    plugin: EcosystemPlugin, tmp_path: Path
) -> None:
    result = fixed(plugin, tmp_path, {"requirements.txt": "bad==1.0\nbuilt==1.0\n"})
    assert after(result, "requirements.txt") == "bad==1.2\nbuilt==1.0\n"
    assert any("built 1.0 has no wheel, and its archive" in note for note in result.notes)
