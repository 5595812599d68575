"""uv projects against the real uv and a registry of our own: every step, and what none may do."""

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.vocabulary import LadderStep, ProofLevel, RefusalReason
from fallback_plugins.pypi.uv import UvProject
from fallback_plugins.shared.ladder import ProjectFix, combined
from fallback_tier.advisory import Advisory, bundle
from fallback_tier.errors import RecipeError
from fallback_tier.execution import CommandResult, allowing
from fallback_tier.repo import Settings
from fallback_tier.sandbox.clients import SubprocessClients
from tests.kinds import OfKind
from tests.registry import Universe, serve
from tests.unit.shared.recipes import advisory, repository

ADVISORY = advisory("PyPI", "leaf", [("0", "1.2")])

_UNIVERSE = (
    Universe()
    .pypi("leaf", "1.0")
    .pypi("leaf", "1.1")
    .pypi("leaf", "1.2")
    .pypi("leaf", "1.3")
    .pypi("leaf", "2.0")
    .pypi("open", "1.0", ["leaf<2"])
    .pypi("tight", "1.0", ["leaf<1.2"])
    .pypi("tight", "1.1", ["leaf<1.2"])
    .pypi("tight", "2.0", ["leaf<2"])
    .pypi("tight", "3.0", ["leaf<2"])
    .pypi("stuck", "1.0", ["leaf<1.2"])
    .pypi("other", "1.0")
    .pypi("other", "1.1")
    .pypi("withdrawn", "1.0")
    .pypi("withdrawn", "1.1", yanked="broken")
    .pypi("withdrawn", "1.2")
    .pypi("source-only", "1.0", sdist_only=True)
    # A framework whose lower part has gone on: framework 2.0 was written for engine 2.0.
    .pypi("framework", "1.0", ["leaf<1.2", "engine<2"])
    .pypi("framework", "2.0", ["leaf<2", "engine>=2", "tools"])
    .pypi("engine", "1.0")
    .pypi("engine", "2.0")
    .pypi("engine", "3.0")
    # Another, which says no upper bound: 2.0 and 2.1 admit a leaf that came years after them.
    .pypi("house", "1.0", ["leaf<1.2", "brick<1.5"])
    .pypi("house", "2.0", ["leaf>=1.0", "brick"])
    .pypi("house", "2.1", ["leaf>=1.1", "brick"])
    .pypi("house", "2.2", ["leaf>=1.2", "brick>=1.5", "split>=2"])
    .pypi("house", "2.3", ["leaf>=1.2", "brick>=1.6"])
    .pypi("house", "3.0", ["leaf>=2"])
    .pypi("within", "1.0", ["leaf<1.2"])
    .pypi("within", "1.1", ["leaf>=1.0"])
    .pypi("within", "1.2", ["leaf>=1.2"])
    .pypi("unnamed", "1.0", ["leaf<1.2"])
    .pypi("unnamed", "2.0", ["leaf"])
    .pypi("unnamed", "2.1", ["leaf"])
    .pypi("brick", "1.0")
    .pypi("brick", "1.5")
    .pypi("brick", "1.6")
    .pypi("split", "1.0")
    .pypi("split", "2.0")
    .pypi("split", "3.0", requires_python=">=3.11")
    .pypi("tools", "1.0")
    .pypi("tools", "2.0")
    # A helper with a release that admits the fix, below a client whose next candidate goes without it.
    .pypi("helper", "0.9", ["leaf"])
    .pypi("helper", "1.0", ["leaf<1.2"])
    .pypi("helper", "1.1", ["leaf>=1.2"])
    .pypi("client", "1.0", ["helper>=1"])
    .pypi("client", "2.0.dev1", ["leaf"])
    .pypi("cautious", "1.0", ["helper<1.1"])
    .pypi("cautious", "1.1", ["helper"])
    .pypi("cautious", "2.0", ["helper>=1.1"])
    .pypi("hopeful", "1.0", ["stuck"])
    .pypi("hopeful", "2.0.dev1", ["leaf"])
)


_LOCK = """version = 1
revision = 3
requires-python = ">=3.9"

[[package]]
name = "app"
version = "0.1"
source = { virtual = "." }
dependencies = [
    { name = "leaf" },
]

[package.metadata]
requires-dist = [{ name = "leaf", specifier = "==1.0" }]

[[package]]
name = "leaf"
version = "1.0"
source = { registry = "index" }
"""


@dataclass
class Bench:
    """Locks made by the real uv, and the projects over them."""

    clients: SubprocessClients
    folder: Path

    def lock(self, files: Mapping[str, str], *pins: str) -> dict[str, str]:
        """The files with the uv.lock that uv makes of them, with old versions (``leaf==1.0``) in it."""
        place = repository(self.folder / "made", files).root
        upgrades = [f"--upgrade-package={pin}" for pin in pins]
        result = self.clients.run("uv", ["lock", *upgrades], cwd=place, timeout_s=60)
        assert result.ok, result.output
        return {**files, "uv.lock": (place / "uv.lock").read_text()}

    def project(self, files: Mapping[str, str], *, offline: bool = False) -> UvProject:
        """A project over a repository of these files."""
        repo = repository(self.folder / "repo", files)
        repo = repo.model_copy(update={"settings": Settings(offline=offline)})
        return UvProject(repo, self.clients, "uv.lock")

    def resolve(self, files: Mapping[str, str], record: Advisory = ADVISORY) -> ProjectFix:
        """The fix, held against what none may do."""
        project = self.project(files)
        fix = project.resolve(record)
        assert fix is not None
        combined("PyPI", record, project.repo, [fix])
        return fix


@pytest.fixture(scope="module")
def clients() -> Iterator[SubprocessClients]:
    with serve(_UNIVERSE) as registry:
        yield SubprocessClients({**os.environ, **registry.environ})


@pytest.fixture
def bench(clients: SubprocessClients, tmp_path: Path) -> Bench:
    return Bench(clients, tmp_path)


def _manifest(*dependencies: str, more: str = "") -> str:
    lines = "".join(f'    "{one}", # why {index}\n' for index, one in enumerate(dependencies))
    return (
        '[project]\nname = "app"\nversion = "0.1"\nrequires-python = ">=3.9"\n'
        f"dependencies = [\n{lines}]\n{more}"
    )


def _version(lock: str, name: str) -> str:
    found = re.search(rf'name = "{name}"\nversion = "([^"]+)"', lock)
    assert found
    return found[1]


def test_an_in_range_refresh_changes_one_block_of_the_lock(bench: Bench) -> None:
    files = bench.lock({"pyproject.toml": _manifest("open", "other")}, "leaf==1.0", "other==1.0")
    # A lock of an older uv: another revision, and less said of each file.
    old = re.sub(r', (upload-time = "[^"]*"|size = \d+)', "", files["uv.lock"])
    old = re.sub(r"revision = \d+", "revision = 1", old)

    fix = bench.resolve({**files, "uv.lock": old})

    assert [(move.package, move.step, move.after) for move in fix.moves] == [
        ("leaf", LadderStep.LOCK_REFRESH, "1.2")
    ]
    assert list(fix.texts) == ["uv.lock"]
    changed = set(fix.texts["uv.lock"].splitlines()) - set(old.splitlines())
    assert len(changed) == 2, changed
    assert all("1.2" in line for line in changed)
    assert fix.proof_level is ProofLevel.RESOLVED_TREE


class Counting:
    """The real clients, and what they were asked."""

    def __init__(self, clients: SubprocessClients) -> None:
        self._clients = clients
        self.asked: list[Sequence[str]] = []

    def run(self, tool: str, args: Sequence[str], **options: Any) -> CommandResult:
        self.asked.append([tool, *args])
        return self._clients.run(tool, args, **options)


@pytest.mark.parametrize("declared", ["leaf", "leaf==1.1"])
def test_a_plain_bump_asks_uv_once(bench: Bench, declared: str) -> None:
    """The goal is the client's own call and little more; a yanked release shows in its answer."""
    counting = Counting(bench.clients)
    files = bench.lock({"pyproject.toml": _manifest(declared)}, "leaf==1.1")
    project = replace(bench.project(files), clients=counting)
    fix = project.resolve(ADVISORY)
    assert fix is not None
    assert fix.moves[0].after == "1.2"
    assert [command[1] for command in counting.asked] == ["lock"]


def test_a_pin_is_raised_and_its_comment_stays(bench: Bench) -> None:
    files = bench.lock({"pyproject.toml": _manifest("leaf==1.0", "other")})
    fix = bench.resolve(files)
    (move,) = fix.moves
    assert (move.step, move.after) == (LadderStep.DIRECT_BUMP, "1.2")
    assert [step.step for step in move.declined] == [LadderStep.LOCK_REFRESH]
    assert fix.texts["pyproject.toml"] == files["pyproject.toml"].replace("leaf==1.0", "leaf==1.2")


def test_the_parent_is_raised_to_the_lowest_version_that_serves(bench: Bench) -> None:
    files = bench.lock({"pyproject.toml": _manifest("tight>=1.0,<2", "other")}, "other==1.0")
    fix = bench.resolve(files)
    (move,) = fix.moves
    assert (move.step, move.after, move.raised) == (LadderStep.PARENT_BUMP, "1.2", ("tight 2.0",))
    assert '"tight>=2.0,<3", # why 0' in fix.texts["pyproject.toml"]
    assert _version(fix.texts["uv.lock"], "other") == "1.0"
    refused = move.declined[0].reason
    assert "tight" in refused
    assert "<1.2" in refused


def test_a_parent_within_its_range_is_a_refresh(bench: Bench) -> None:
    files = bench.lock({"pyproject.toml": _manifest("tight<3")}, "tight==1.0")
    fix = bench.resolve(files)
    (move,) = fix.moves
    assert (move.step, move.raised) == (LadderStep.LOCK_REFRESH, ("tight 2.0",))
    assert list(fix.texts) == ["uv.lock"]


@pytest.mark.parametrize(
    ("declared", "locked", "raised"),
    [
        # Never the client's development release, which goes without the helper.
        ("client>=1", ["helper==1.0"], ("helper 1.1",)),
        # Forward, and not back to the helper's first release, which has no bound; not to the next major.
        ("cautious>=1", ["cautious==1.0", "helper==1.0"], ("cautious 1.1", "helper 1.1")),
    ],
)
def test_what_holds_a_package_back_moves_forward_with_it(
    bench: Bench, declared: str, locked: list[str], raised: tuple[str, ...]
) -> None:
    files = bench.lock({"pyproject.toml": _manifest(declared)}, "leaf==1.1", *locked)
    fix = bench.resolve(files)
    (move,) = fix.moves
    assert (move.step, move.raised) == (LadderStep.LOCK_REFRESH, raised)
    assert set(fix.texts) == {"uv.lock"}


def test_an_override_is_taken_before_a_candidate(bench: Bench) -> None:
    """uv takes a pre-release if no final release serves."""
    files = bench.lock({"pyproject.toml": _manifest("hopeful>=1")}, "leaf==1.1", "hopeful==1.0")
    fix = bench.resolve(files)
    (move,) = fix.moves
    assert move.step is LadderStep.OVERRIDE
    assert "hopeful 2.0.dev1 would come in, which is a pre-release" in move.declined[0].reason


def test_an_override_within_the_major_is_the_last_step(bench: Bench) -> None:
    files = bench.lock({"pyproject.toml": _manifest("stuck", "other")})
    fix = bench.resolve(files)
    (move,) = fix.moves
    assert (move.step, move.after) == (LadderStep.OVERRIDE, "1.2")
    assert [step.step for step in move.declined] == [
        LadderStep.LOCK_REFRESH,
        LadderStep.DIRECT_BUMP,
        LadderStep.PARENT_BUMP,
    ]
    added = '\n[tool.uv]\noverride-dependencies = ["leaf>=1.2,<2"]\n'
    assert fix.texts["pyproject.toml"] == files["pyproject.toml"] + added


def test_another_major_is_not_forced_on_a_parent(bench: Bench) -> None:
    files = bench.lock({"pyproject.toml": _manifest("stuck")})
    fix = bench.project(files).resolve(advisory("PyPI", "leaf", [("0", "2.0")]))
    assert fix is not None
    assert not fix.moves
    (left,) = fix.left
    assert left.reason is RefusalReason.BLOCKED_BY_CONSTRAINT
    assert "stuck 1.0 in pyproject.toml requires leaf <1.2" in left.sentence


def test_an_override_that_pins_the_affected_version_is_what_is_raised(bench: Bench) -> None:
    more = '[tool.uv]\noverride-dependencies = ["leaf==1.1"]\n'
    files = bench.lock({"pyproject.toml": _manifest("stuck", more=more)})
    fix = bench.resolve(files)
    (move,) = fix.moves
    assert (move.step, move.after) == (LadderStep.DIRECT_BUMP, "1.2")
    assert fix.texts["pyproject.toml"] == files["pyproject.toml"].replace("==1.1", "==1.2")
    assert not fix.notes  # stuck admits nothing that is safe


def test_an_override_that_nothing_needs_any_more_is_named(bench: Bench) -> None:
    more = '[tool.uv]\noverride-dependencies = [\n  "other==1.0",  # kept\n  "leaf==1.1",\n]\n'
    files = bench.lock({"pyproject.toml": _manifest("open", "other", more=more)})
    fix = bench.resolve(files)
    assert fix.texts["pyproject.toml"] == files["pyproject.toml"].replace("leaf==1.1", "leaf==1.2")
    assert any(
        "The override of leaf in pyproject.toml is no longer needed" in it for it in fix.notes
    )


def test_a_yanked_release_is_passed_over(bench: Bench) -> None:
    files = bench.lock({"pyproject.toml": _manifest("withdrawn<2")}, "withdrawn==1.0")
    fix = bench.resolve(files, advisory("PyPI", "withdrawn", [("0", "1.1")]))
    assert fix.moves[0].after == "1.2"
    assert any("yanked" in note for note in fix.notes)


def test_a_lock_without_its_manifest_is_edited_as_uv_would(bench: Bench) -> None:
    more = (
        '[dependency-groups]\ndev = ["other>=1"]\n[project.optional-dependencies]\nx = ["tight"]\n'
    )
    manifest = {"pyproject.toml": _manifest("open ; python_version < '3.13'", more=more)}
    files = bench.lock(manifest, "leaf==1.0", "other==1.0", "tight==2.0")
    fix = bench.resolve({"uv.lock": files["uv.lock"]})
    assert [(move.step, move.after) for move in fix.moves] == [(LadderStep.LOCK_EDIT, "1.2")]
    assert list(fix.texts) == ["uv.lock"]
    changed = set(fix.texts["uv.lock"].splitlines()) - set(files["uv.lock"].splitlines())
    assert len(changed) == 2, changed


def _as_source_only(files: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """``other`` locked as a release is whose requirements only a build could tell (uv may build nothing
    here), and the end of that entry."""
    renamed = {path: text.replace('"other', '"source-only') for path, text in files.items()}
    before, name, after = renamed["uv.lock"].rpartition('name = "source-only"\nversion')
    (wheel,) = re.findall(r"wheels = \[\n    (.*source-only.*|.*other.*whl.*),\n\]", after)
    sdist = wheel.replace("other-1.0-py3-none-any.whl", "source_only-1.0.tar.gz")
    after = re.sub(r"wheels = \[\n    .*other.*\n\]", f"sdist = {sdist}", after)
    return {**renamed, "uv.lock": before + name + after}, after


def test_a_locked_release_without_a_wheel_is_taken_at_the_locks_word(bench: Bench) -> None:
    files = bench.lock({"pyproject.toml": _manifest("open", "other==1.0")}, "leaf==1.0")
    files, entry = _as_source_only(files)
    fix = bench.resolve(files)
    assert fix.moves[0].step is LadderStep.LOCK_REFRESH
    assert entry in fix.texts["uv.lock"]


def test_beside_such_a_release_too_what_moves_along_moves_little(bench: Bench) -> None:
    files = bench.lock({"pyproject.toml": _manifest("framework==1.0", "other==1.0")})
    fix = bench.resolve(_as_source_only(files)[0])
    assert fix.after is not None
    assert [node.version for node in fix.after.of("engine")] == ["2.0"]


def test_a_missing_manifest_that_would_have_to_change_is_said(bench: Bench) -> None:
    files = bench.lock({"pyproject.toml": _manifest("leaf==1.0")})
    fix = bench.project({"uv.lock": files["uv.lock"]}).resolve(ADVISORY)
    assert fix is not None
    assert fix.left[0].reason is RefusalReason.MANIFEST_MISSING
    assert "app requires leaf ==1.0, which does not admit 1.2" in fix.left[0].sentence


def test_a_lock_that_does_not_tell_its_manifest_is_not_edited(bench: Bench) -> None:
    # It asks for a package that it does not hold: no manifest gives this lock.
    lock = _LOCK.replace("requires-dist = [", 'requires-dist = [{ name = "other" }, ')
    with pytest.raises(RecipeError, check=OfKind("manifest_incomplete")) as caught:
        bench.project({"uv.lock": lock}).resolve(ADVISORY)
    assert caught.value.reason is RefusalReason.MANIFEST_MISSING


def test_another_registry_than_the_locks_is_not_taken(bench: Bench) -> None:
    files = bench.lock({"pyproject.toml": _manifest("leaf==1.0")})
    private = re.sub(
        r'registry = "[^"]*"', 'registry = "https://private.invalid/simple"', files["uv.lock"]
    )
    project = bench.project({**files, "uv.lock": private})
    refused = project.resolve(ADVISORY)
    assert refused is not None
    assert not refused.texts
    assert any("--allow-host private.invalid" in it.reason for it in refused.left[0].declined)
    allowed = replace(project, clients=allowing(project.clients, ("private.invalid",)))
    fix = allowed.resolve(ADVISORY)
    assert fix is not None
    assert not fix.texts
    assert any("which uv.lock does not name" in step.reason for step in fix.left[0].declined)


def test_a_member_of_a_workspace_is_raised(bench: Bench) -> None:
    member = _manifest("leaf==1.0").replace('"app"', '"member"')
    root = _manifest(more='[tool.uv.workspace]\nmembers = ["packages/*"]\n')
    files = bench.lock({"pyproject.toml": root, "packages/member/pyproject.toml": member})
    assert bench.project(files).manifests == {
        "uv.lock",
        "pyproject.toml",
        "packages/member/pyproject.toml",
    }
    fix = bench.resolve(files)
    assert sorted(fix.texts) == ["packages/member/pyproject.toml", "uv.lock"]


def test_a_computed_version_is_no_obstacle_and_computed_requirements_are(bench: Bench) -> None:
    files = bench.lock({"pyproject.toml": _manifest("leaf==1.0")})
    dynamic = files["pyproject.toml"].replace('version = "0.1"', 'dynamic = ["version"]')
    lock = files["uv.lock"].replace('name = "app"\nversion = "0.1"\n', 'name = "app"\n')
    fix = bench.resolve({"pyproject.toml": dynamic, "uv.lock": lock})
    assert 'name = "app"\nsource' in fix.texts["uv.lock"]

    hidden = dynamic.replace('["version"]', '["version", "optional-dependencies"]')
    with pytest.raises(RecipeError, check=OfKind("dynamic"), match="optional-dependencies"):
        bench.project({"pyproject.toml": hidden, "uv.lock": lock}).resolve(ADVISORY)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ('other = { git = "https://example.org/other" }', "other"),
        ('other = { path = "../../elsewhere" }', r"\.\./\.\./elsewhere"),
    ],
)
def test_sources_that_lead_out_are_refused_by_name(bench: Bench, source: str, value: str) -> None:
    files = {"uv.lock": _LOCK}
    manifest = _manifest("leaf==1.0", "other", more=f"[tool.uv.sources]\n{source}\n")
    with pytest.raises(RecipeError, match=value):
        bench.project({**files, "pyproject.toml": manifest}).resolve(ADVISORY)


def test_several_advisories_are_fixed_together(bench: Bench) -> None:
    files = bench.lock({"pyproject.toml": _manifest("leaf==1.0", "other")}, "other==1.0")
    both = bundle([ADVISORY, advisory("PyPI", "other", [("0", "1.1")])])
    fix = bench.resolve(files, both)
    assert {(move.package, move.step) for move in fix.moves} == {
        ("other", LadderStep.LOCK_REFRESH),
        ("leaf", LadderStep.DIRECT_BUMP),
    }


def test_the_outline_asks_nobody(bench: Bench) -> None:
    project = bench.project({"uv.lock": _LOCK, "pyproject.toml": _manifest("leaf==1.0")})
    project.clients = _nobody()
    (move,) = project.outline(ADVISORY).moves
    assert (move.step, move.before, move.after) == (LadderStep.DIRECT_BUMP, ("1.0",), "1.2")
    unfixed = project.outline(advisory("PyPI", "leaf", [("0", None)]))
    assert unfixed.left[0].reason is RefusalReason.NO_FIXED_VERSION


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("uv.toml", 'index-url = "http://127.0.0.1:9/simple"\n'),
        ("pyproject.toml", '[tool.uv.workspace]\nmembers = ["**"]\n[tool.uv]\nindex-url = "x"\n'),
    ],
)
def test_what_lies_in_everybodys_temporary_folder_steers_nothing(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    """uv looks for settings and workspaces in every folder above its own."""
    files = bench.lock({"pyproject.toml": _manifest("leaf==1.0")})
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / name).write_text(text)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "shared"))
    assert bench.resolve(files).moves[0].after == "1.2"


def test_an_unaffected_lock_is_left_alone(bench: Bench) -> None:
    files = {"uv.lock": _LOCK, "pyproject.toml": _manifest("leaf==1.0")}
    assert bench.project(files).resolve(advisory("PyPI", "other", [("0", "9")])) is None


def test_a_lock_that_is_no_toml_says_so_and_keeps_its_neighbour(bench: Bench) -> None:
    project = bench.project({"uv.lock": "= nonsense", "pyproject.toml": _manifest("leaf")})
    assert project.manifests == {"uv.lock", "pyproject.toml"}
    with pytest.raises(RecipeError, check=OfKind("not_toml")):
        project.resolve(ADVISORY)


def _nobody() -> SubprocessClients:
    class Nobody(SubprocessClients):
        def _locate(self, tool: str) -> Path:
            raise AssertionError(f"{tool} was started")

    return Nobody()


def test_what_has_to_move_along_moves_as_little_as_serves(bench: Bench) -> None:
    """uv by itself would take engine 3.0, which framework 2.0 was never tested with."""
    files = {"pyproject.toml": _manifest("framework==1.0", "other")}
    fix = bench.resolve(bench.lock(files, "other==1.0"))
    assert fix.after is not None
    held = {node.name: node.version for node in fix.after.nodes.values()}
    assert held["framework"] == "2.0"
    assert held["engine"] == "2.0"
    assert held["other"] == "1.0"
    # What was not there before is the registry's newest, as everybody installs it.
    assert held["tools"] == "2.0"
    (move,) = fix.moves
    assert set(move.raised) == {"framework 2.0", "engine 2.0"}


def test_what_moves_along_never_goes_to_an_affected_version(bench: Bench) -> None:
    files = bench.lock({"pyproject.toml": _manifest("framework==1.0")})
    record = bundle([ADVISORY, advisory("PyPI", "engine", [("2.0", "3.0")])])
    fix = bench.resolve(files, record)
    assert fix.after is not None
    assert [node.version for node in fix.after.of("engine")] == ["3.0"]


def test_across_a_major_the_parent_of_the_fixed_childs_own_line_is_taken_and_pins_follow(
    bench: Bench,
) -> None:
    """house 2.0 and 2.1 admit leaf 1.2, and were made for older ones. What 2.2 admits stays where it is."""
    asked = ("house==1.0", "brick==1.0", "split==1.0", "other==1.0")
    files = bench.lock({"pyproject.toml": _manifest(*asked)}, "leaf==1.1")
    fix = bench.resolve(files)
    (move,) = fix.moves
    print(move.declined)
    assert (move.step, move.after) == (LadderStep.PARENT_BUMP, "1.2")
    assert set(move.raised) == {"house 2.2", "brick 1.5", "split 2.0"}
    now = fix.texts["pyproject.toml"]
    assert now == _manifest("house==2.2", "brick==1.5", "split==2.0", "other==1.0")


@pytest.mark.parametrize(
    ("parent", "raised"), [("within==1.0", "within 1.1"), ("unnamed==1.0", "unnamed 2.0")]
)
def test_within_a_major_or_where_no_line_is_told_the_lowest_parent_stays(
    bench: Bench, parent: str, raised: str
) -> None:
    (move,) = bench.resolve(bench.lock({"pyproject.toml": _manifest(parent)}, "leaf==1.1")).moves
    assert move.raised == (raised,)


def test_what_uv_would_split_by_python_stays_one_where_a_lower_version_serves(bench: Bench) -> None:
    files = bench.lock(
        {"pyproject.toml": _manifest("house==1.0", "split")}, "leaf==1.1", "split==1.0"
    )
    fix = bench.resolve(files)
    assert fix.after is not None
    print(fix.moves, fix.texts["uv.lock"])
    assert [node.version for node in fix.after.of("split")] == ["2.0"]
