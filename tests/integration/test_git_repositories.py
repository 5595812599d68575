"""`plan`, `fix`, its handover, `attempt` and a service's checkouts in repositories of every kind: whatever
their configuration names doesn't run, and none ends otherwise than a plain one."""

import hashlib
import json
import os
import socket
import subprocess
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from fallback_tier.cli import exit_codes
from fallback_tier.errors import RepositoryError
from fallback_tier.inspection import look_at
from fallback_tier.repo import Settings
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.workers.checkouts import Checkouts
from fallback_tier.workers.tables import RepositorySettings
from tests.e2e.command import osv, run
from tests.fakes.hostile_git import PLACES, SELECTIONS, Canary, in_config
from tests.fakes.repository import GIT_ENV, commit_all, git, write
from tests.integration.test_cli_several import FILES, Scenario, printed
from tests.kinds import OfKind
from tests.unit.planning.test_planning import advisory

#: Times that no index has.
_TIMES = count(1)

FIXED = "left 2.0.0\nright 1.0.0\n"


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    made = Scenario(tmp_path)
    _identify(made.repo)
    return made


def _identify(repo: Path) -> None:
    git(repo, "config", "user.name", "A Person")
    git(repo, "config", "user.email", "person@example.invalid")


def _touch(repo: Path) -> None:
    """Make git look into each file."""
    for path in repo.iterdir():
        if path.is_file() and path.name != ".git":
            now = next(_TIMES)
            os.utime(path, (now, now))


def _attempt(repo: Path, state: Path) -> None:
    advisories = json.dumps({"advisory": json.loads(osv("left")), "repository": str(repo)})
    ended = run("attempt", "--offline", "--state-dir", state, stdin=advisories)
    assert "Traceback" not in ended.err


# --- programs that a repository names -------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
def test_no_command_runs_what_a_repository_names(
    scenario: Scenario, capsys: pytest.CaptureFixture[str], place: str, tmp_path: Path
) -> None:
    canary = Canary.make(tmp_path / "canary")
    selections = [*SELECTIONS.values()]
    selections[[*PLACES].index(place) % len(selections)](scenario.repo)
    PLACES[place](scenario.repo, canary.settings())
    _touch(scenario.repo)
    env = {**GIT_ENV, "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor",
           "GIT_CONFIG_VALUE_0": "false"}  # fmt: skip
    subprocess.run(["git", "status"], cwd=scenario.repo, env=env, capture_output=True, check=False)
    assert canary.take(), "plain git runs the filter"

    _touch(scenario.repo)
    osv_file = tmp_path / "advisory.json"
    osv_file.write_text(osv("left"))
    run("plan", scenario.repo, "--advisory", osv_file, "--state-dir", tmp_path / "none")
    assert canary.take() == ""
    _attempt(scenario.repo, tmp_path / "attempt")
    assert canary.take() == ""
    assert scenario.fix(advisory("A", "left"), dry_run=True, json=False) == exit_codes.OK
    assert canary.take() == ""
    assert (
        scenario.fix(advisory("A", "left"), commit="", report=tmp_path / "report") == exit_codes.OK
    )
    assert canary.take() == ""
    assert scenario.fix(advisory("A", "left")) == exit_codes.OK
    assert scenario.read("pypi.txt") == FIXED
    assert canary.take() == ""
    capsys.readouterr()


@pytest.mark.parametrize("place", PLACES)
def test_no_checkout_of_a_service_runs_what_a_repository_names(tmp_path: Path, place: str) -> None:
    source = tmp_path / "source"
    write(source, {"file.txt": "one\n"})
    commit_all(source)
    SELECTIONS[".gitattributes"](source)
    canary = Canary.make(tmp_path / "canary")
    PLACES[place](source, canary.settings())
    _touch(source)
    checkouts = Checkouts(tmp_path / "state", SubprocessClients(), tmp_path / "state" / "home")
    app = RepositorySettings(path=source)
    head = checkouts.commit_of("app", app)
    assert "file.txt" in checkouts.tracked("app", app, head)
    assert [it.text for it in checkouts.texts("app", app, head, ["file.txt"])] == ["one\n"]
    with checkouts.made("fix-1", "app", app, head) as folder:
        assert (folder / "file.txt").read_text() == "one\n"
    assert checkouts.standing("app", app).is_dir()
    assert canary.take() == ""


def test_a_service_fetches_by_its_own_configuration_alone(tmp_path: Path) -> None:
    """A mirror that another process wrote to."""
    source = tmp_path / "there" / "app.git"
    write(source, {"file.txt": "one\n"})
    commit_all(source)
    (tmp_path / ".gitconfig").write_text(
        '[protocol "file"]\n allow = always\n'
        f'[url "file://{tmp_path}/there/"]\n insteadOf = https://git.example/\n'
    )
    clients = SubprocessClients({"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    checkouts = Checkouts(tmp_path / "state", clients, tmp_path / "state" / "home")
    app = RepositorySettings(url="https://git.example/app.git")
    checkouts.commit_of("app", app)
    canary = Canary.make(tmp_path / "canary")
    settings = canary.settings()
    del settings["remote.origin.url"]
    mirror = tmp_path / "state" / "home" / "mirrors" / "app.git"
    for key, value in settings.items():
        git(mirror, "config", "--add", key, value)
    write(source, {"file.txt": "two\n"})
    head = commit_all(source)
    assert checkouts.commit_of("app", app) == head
    assert canary.take() == ""


def test_a_service_reads_a_bare_repository(tmp_path: Path) -> None:
    bare = tmp_path / "bare.git"
    git(_plain(tmp_path / "source"), "clone", "-q", "--bare", ".", str(bare))
    checkouts = Checkouts(tmp_path / "state", SubprocessClients(), tmp_path / "state" / "home")
    app = RepositorySettings(path=bare)
    head = checkouts.commit_of("app", app)
    assert set(checkouts.tracked("app", app, head)) == set(FILES)
    with checkouts.made("fix-1", "app", app, head) as folder:
        assert (folder / "pypi.txt").read_text() == FILES["pypi.txt"]


def test_a_service_fetches_nothing_that_a_partial_clone_lacks(tmp_path: Path) -> None:
    source = _blobless(tmp_path / "repo")
    canary = Canary.make(tmp_path / "canary")
    in_config(source, canary.settings())
    checkouts = Checkouts(tmp_path / "state", SubprocessClients(), tmp_path / "state" / "home")
    app = RepositorySettings(path=source)
    before = git(source, "rev-parse", "HEAD~1").strip()
    failing = pytest.raises(RepositoryError, match="unable to read")
    with failing, checkouts.made("fix-1", "app", app, before):
        pass
    assert canary.take() == ""


# --- repositories of every kind -------------------------------------------------------------------


def _plain(place: Path) -> Path:
    write(place, FILES)
    commit_all(place)
    return place


def _sha256(place: Path) -> Path:
    place.mkdir()
    git(place, "init", "-q", "--object-format=sha256")
    return _plain(place)


def _linked(place: Path) -> Path:
    git(_plain(place.with_name("main")), "worktree", "add", "-q", "--detach", str(place))
    return place


def _linked_bare(place: Path) -> Path:
    bare = place.with_name("bare.git")
    git(_plain(place.with_name("main")), "clone", "-q", "--bare", ".", str(bare))
    git(bare, "worktree", "add", "-q", "--detach", str(place))
    return place


def _linked_with_settings(place: Path) -> Path:
    main = _linked(place).with_name("main")
    git(main, "config", "extensions.worktreeConfig", "true")
    git(place, "config", "--worktree", "user.name", "Another")
    git(place, "config", "--worktree", "user.email", "another@example.invalid")
    return place


def _sparse(place: Path, *words: str) -> Path:
    write(place, {"notes/a.md": "a\n", "src/deep/b.py": "b\n"})
    git(_plain(place), "sparse-checkout", "set", *words)
    assert not (place / "notes").exists()
    return place


def _cone(place: Path) -> Path:
    return _sparse(place, "--cone", "src")


def _sparse_index(place: Path) -> Path:
    return _sparse(place, "--cone", "--sparse-index", "src")


def _patterns(place: Path) -> Path:
    return _sparse(place, "--no-cone", "/*", "!notes/")


def _linked_sparse(place: Path) -> Path:
    write(place.with_name("main"), {"notes/a.md": "a\n"})
    git(_linked(place), "sparse-checkout", "set", "--cone", "src")
    assert not (place / "notes").exists()
    return place


def _cloned(place: Path, *words: str) -> Path:
    source = place.with_name("source")
    _plain(source)
    write(source, {"shared.txt": "more\n"})
    commit_all(source)
    git(source, "config", "uploadpack.allowFilter", "true")
    git(source.parent, "clone", "-q", *words, f"file://{source}", str(place))
    return place


def _shallow(place: Path) -> Path:
    return _cloned(place, "--depth=1")


def _blobless(place: Path) -> Path:
    return _cloned(place, "--filter=blob:none")


def _treeless(place: Path) -> Path:
    return _cloned(place, "--filter=tree:0")


def _old_partial(place: Path) -> Path:
    git(_cloned(place, "--filter=blob:none"), "config", "extensions.partialClone", "origin")
    git(place, "config", "core.repositoryformatversion", "1")
    return place


def _separate(place: Path) -> Path:
    git(_plain(place), "init", "-q", "--separate-git-dir", str(place.with_name("git")))
    assert (place / ".git").is_file()
    return place


def _working_tree_elsewhere(place: Path) -> Path:
    git(_separate(place), "config", "core.worktree", str(place))
    return place


def _borrowed(place: Path) -> Path:
    return _cloned(place, "--shared")


def _packed(place: Path) -> Path:
    git(_plain(place), "pack-refs", "--all")
    git(place, "gc", "-q")
    return place


def _submodules(place: Path) -> Path:
    """Two of them, with commits of their own checked out; and it is one itself."""
    inner = _plain(place.with_name("inner"))
    outer = _plain(place.with_name("outer"))
    add = ("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner))
    git(inner, *add[:-1], str(_plain(place.with_name("innermost"))), "library")
    commit_all(inner)
    git(outer, *add, place.name)
    git(outer, "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init",
        "--recursive")  # fmt: skip
    commit_all(outer)
    _identify(outer / place.name / "library")
    (outer / place.name / "library" / "shared.txt").write_text("edited\n")  # not of this repository
    return outer / place.name


def _odd_path(place: Path) -> Path:
    return _plain(place.with_name('od"d \\ ü\ttrue'))


def _included_identity(place: Path) -> Path:
    git(_plain(place), "config", "include.path", "person")
    write(place, {".git/person": "[user]\n\tname = Included\n\temail = i@example.invalid\n"})
    return place


def _shared_group(place: Path) -> Path:
    place.mkdir()
    git(place, "init", "-q", "--shared=group")
    return _plain(place)


def _modes_ignored(place: Path) -> Path:
    git(_plain(place), "config", "core.fileMode", "false")
    (place / "shared.txt").chmod(0o755)
    return place


def _line_ends(place: Path) -> Path:
    """Each file laid out with CRLF."""
    write(place, {".gitattributes": "shared.txt text=auto\n"})
    git(_plain(place), "config", "core.eol", "crlf")
    (place / "shared.txt").write_bytes(b"shared\r\n")
    git(place, "add", "shared.txt")
    return place


def _laid_out_with(place: Path, attributes: str, text: str, **settings: str) -> Path:
    """A repository whose working tree has other line ends than the commit, which git calls clean."""
    write(place, {".gitattributes": attributes})
    _plain(place)
    for key, value in settings.items():
        git(place, "config", f"core.{key}", value)
    (place / "pypi.txt").write_bytes(text.encode())
    git(place, "add", "pypi.txt")
    return place


CRLF = FILES["pypi.txt"].replace("\n", "\r\n")


def _autocrlf(place: Path) -> Path:
    return _laid_out_with(place, "", CRLF, autocrlf="true", safecrlf="true")


def _autocrlf_with_lf(place: Path) -> Path:
    return _laid_out_with(place, "", FILES["pypi.txt"], autocrlf="true", safecrlf="false")


def _autocrlf_input(place: Path) -> Path:
    return _laid_out_with(place, "", CRLF, autocrlf="input")


def _autocrlf_mixed(place: Path) -> Path:
    return _laid_out_with(place, "", CRLF.replace("\r", "", 1), autocrlf="input")


def _text_by_attribute(place: Path) -> Path:
    return _laid_out_with(place, "*.txt text\n", CRLF)


def _text_with_core_eol(place: Path) -> Path:
    return _laid_out_with(place, "* text=auto\n", CRLF, eol="crlf")


def _eol_lf_with_crlf(place: Path) -> Path:
    return _laid_out_with(place, "*.txt text eol=lf\n", CRLF, autocrlf="true")


def _eol_crlf(place: Path) -> Path:
    return _laid_out_with(place, "*.txt text eol=crlf\n", CRLF)


def _eol_crlf_with_lf(place: Path) -> Path:
    return _laid_out_with(place, "*.txt text eol=crlf\n", FILES["pypi.txt"])


KINDS = (_plain, _sha256, _linked, _linked_bare, _linked_with_settings, _cone, _sparse_index, _patterns,
         _linked_sparse, _shallow, _blobless, _treeless, _old_partial, _separate, _working_tree_elsewhere,
         _borrowed, _packed, _submodules, _odd_path, _included_identity, _shared_group, _modes_ignored,
         _line_ends, _autocrlf, _autocrlf_with_lf, _autocrlf_input, _autocrlf_mixed, _text_by_attribute,
         _text_with_core_eol, _eol_lf_with_crlf, _eol_crlf, _eol_crlf_with_lf)  # fmt: skip


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__.strip("_"))
def test_a_repository_of_any_kind_is_planned_and_fixed(
    tmp_path: Path, make: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = Scenario(tmp_path / "scenario")
    repo = scenario.repo = make(tmp_path / "repo")
    if make not in {_included_identity, _linked_with_settings}:
        _identify(repo)
    git(repo, "config", "--add", "core.abbrev", "12")  # of no matter, and read by nothing here
    _touch(repo)
    before = git(repo, "status", "--porcelain", "--ignore-submodules=dirty")
    assert before == ""
    settings = (repo / ".git").read_bytes() if (repo / ".git").is_file() else b""
    assert look_at(repo, SubprocessClients(), Settings()).root == repo
    assert scenario.fix(advisory("A", "left"), commit="") == exit_codes.OK
    branch = printed(capsys)["commit"]
    assert git(repo, "show", f"{branch['branch']}:pypi.txt") == FIXED
    assert git(repo, "status", "--porcelain", "--ignore-submodules=dirty") == ""
    assert git(repo, "fsck", "--connectivity-only", branch["commit"]) is not None
    assert branch["branch"] in git(repo, "reflog", branch["branch"])
    assert scenario.fix(advisory("A", "left")) == exit_codes.OK
    assert scenario.read("pypi.txt") == FIXED
    assert git(repo, "diff", "--name-only", "--ignore-submodules=dirty").split() == ["pypi.txt"]
    if settings:
        assert (repo / ".git").read_bytes() == settings


def test_a_checkout_without_some_files_is_none(tmp_path: Path) -> None:
    """A partial clone, sparse: git says that it can't read them, and exits with 0."""
    source = tmp_path / "source"
    write(source, {"notes/a.md": "a\n"})
    repo = _cloned(tmp_path / "repo", "--filter=blob:none", "--sparse")
    scenario = Scenario(tmp_path / "scenario")
    scenario.repo = repo
    with pytest.raises(RepositoryError, match="unable to read"):
        scenario.fix(advisory("A", "left"))
    assert scenario.read("pypi.txt") == FILES["pypi.txt"]


@pytest.mark.parametrize("mark", ["--assume-unchanged", "--skip-worktree"])
@pytest.mark.parametrize("how", ["changed", "a link", "no file"])
def test_a_change_that_the_index_hides_is_one(
    scenario: Scenario, tmp_path: Path, mark: str, how: str
) -> None:
    """What is read here would not be what the commit has."""
    git(scenario.repo, "update-index", mark, "pypi.txt")
    clients = SubprocessClients()
    assert look_at(scenario.repo, clients, Settings()).base_commit, "an unchanged file"
    place = scenario.repo / "pypi.txt"
    place.unlink()
    if how == "changed":
        place.write_text("left 2.0.0\n")
    elif how == "a link":
        place.symlink_to(tmp_path)
    else:
        os.mkfifo(place)
    assert git(scenario.repo, "status", "--porcelain") == ""
    with pytest.raises(RepositoryError, check=OfKind("dirty"), match=r"pypi\.txt") as caught:
        look_at(scenario.repo, clients, Settings())
    assert "--no-skip-worktree" in caught.value.next_step


def test_grafts_do_not_count(scenario: Scenario) -> None:
    commit = git(scenario.repo, "rev-parse", "HEAD").strip()
    write(scenario.repo, {".git/info/grafts": f"{commit} {'1' * len(commit)}\n"})
    assert look_at(scenario.repo, SubprocessClients(), Settings()).base_commit == commit
    assert scenario.fix(advisory("A", "left")) == exit_codes.OK


def test_who_commits_is_read_from_the_repository(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = Scenario(tmp_path / "scenario")
    for make, name in ((_included_identity, "Included"), (_linked_with_settings, "Another")):
        scenario.repo = make(tmp_path / name / "repo")
        assert scenario.fix(advisory("A", "left"), commit="") == exit_codes.OK
        commit = printed(capsys)["commit"]["commit"]
        assert git(scenario.repo, "show", "-s", "--format=%an", commit).strip() == name


def test_who_commits_may_depend_on_remotes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's own configuration, on a condition about the repository's."""
    (tmp_path / ".gitconfig").write_text(
        "[user]\n\tname = Private\n\temail = p@example.invalid\n"
        '[includeIf "hasconfig:remote.*.url:https://git.example/**"]\n\tpath = work\n'
    )
    (tmp_path / "work").write_text("[user]\n\tname = At Work\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    scenario = Scenario(tmp_path / "scenario")
    git(scenario.repo, "remote", "add", "origin", "https://git.example/app.git")
    assert scenario.fix(advisory("A", "left"), commit="") == exit_codes.OK
    commit = printed(capsys)["commit"]["commit"]
    shown = git(scenario.repo, "show", "-s", "--format=%an %ae", commit).strip()
    assert shown == "At Work p@example.invalid"


def test_reftable(tmp_path: Path) -> None:
    done = subprocess.run(
        ["git", "init", "-q", "--ref-format=reftable", str(tmp_path / "repo")],
        env=GIT_ENV, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"this git makes no reftable: {done.stderr.splitlines()[0]}")
    repo = _plain(tmp_path / "repo")
    _identify(repo)
    scenario = Scenario(tmp_path / "scenario")
    scenario.repo = repo
    assert scenario.fix(advisory("A", "left"), commit="") == exit_codes.OK
    assert git(repo, "show", "fallback-tier/A:pypi.txt") == FIXED


def test_an_extension_that_is_not_known_is_named(tmp_path: Path) -> None:
    """git would refuse it too, unless it is newer than we are."""
    repo = _plain(tmp_path / "repo")
    git(repo, "config", "extensions.noop", "x")
    git(repo, "config", "core.repositoryformatversion", "1")
    assert look_at(repo, SubprocessClients(), Settings()).root == repo
    git(repo, "config", "core.repositoryformatversion", "0")
    git(repo, "config", "extensions.surely-later", "x")  # of the first format, git ignores it
    assert look_at(repo, SubprocessClients(), Settings()).root == repo
    subprocess.run(["git", "config", "core.repositoryformatversion", "1"], cwd=repo, env=GIT_ENV)
    with pytest.raises(RepositoryError, match="surely-later"):
        look_at(repo, SubprocessClients(), Settings())


@pytest.mark.parametrize("settings", [{"autocrlf": "true"}, {"autocrlf": "input"}, {"eol": "crlf"}])
@pytest.mark.parametrize("attributes", ["", "*.txt text=auto\n"])
def test_line_ends_by_a_persons_own_settings_are_no_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], attributes: str
) -> None:
    lines = "".join(f"\t{key} = {value}\n" for key, value in settings.items())
    (tmp_path / ".gitconfig").write_text(f"[core]\n{lines}")
    monkeypatch.setenv("HOME", str(tmp_path))
    scenario = Scenario(tmp_path / "scenario")
    write(scenario.repo, {".gitattributes": attributes})
    commit_all(scenario.repo)
    _identify(scenario.repo)
    (scenario.repo / "pypi.txt").write_bytes(CRLF.encode())
    own = {**GIT_ENV, "GIT_CONFIG_GLOBAL": str(tmp_path / ".gitconfig")}
    converted = bool(attributes or "autocrlf" in settings)
    if converted:
        subprocess.run(["git", "add", "-A"], cwd=scenario.repo, env=own, check=True)
    ask = ["git", "status", "--porcelain"]
    status = subprocess.run(ask, cwd=scenario.repo, env=own, capture_output=True, check=True)
    assert (status.stdout == b"") == converted
    if not converted:
        with pytest.raises(RepositoryError, check=OfKind("dirty"), match=r"pypi\.txt"):
            look_at(scenario.repo, SubprocessClients(), Settings())
    else:
        assert scenario.fix(advisory("A", "left"), commit="") == exit_codes.OK
        assert scenario.fix(advisory("A", "left")) == exit_codes.OK
        assert scenario.read("pypi.txt") == FIXED


def test_line_ends_of_many_and_of_large_files(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More paths than one command takes; a large file, which git would hold in memory, is not searched."""
    monkeypatch.setattr("fallback_tier.gates.trees.isolation._PATHS_PER_COMMAND", 2)
    monkeypatch.setattr("fallback_tier.gates.trees.isolation.MAX_FILE_BYTES", 100)
    git(scenario.repo, "config", "core.autocrlf", "true")
    names = [f"a {number}.txt" for number in range(5)]
    write(scenario.repo, {**dict.fromkeys(names, "a\r\n"), "large.txt": "large\r\n" * 50})
    commit_all(scenario.repo)
    repo = look_at(scenario.repo, SubprocessClients(), Settings())
    assert repo.laid_out_with_crlf == {*names}
    assert repo.read_text(names[0]) == "a\n"


def test_a_change_of_more_than_line_ends_is_one(scenario: Scenario) -> None:
    git(scenario.repo, "config", "core.autocrlf", "true")
    (scenario.repo / "pypi.txt").write_bytes(b"another 1.0.0\r\n")
    with pytest.raises(RepositoryError, check=OfKind("dirty"), match=r"pypi\.txt"):
        look_at(scenario.repo, SubprocessClients(), Settings())


# --- files that never end -------------------------------------------------------------------------

OPENED_BY_GIT = (
    ".git/HEAD", ".git/config", ".git/config.worktree", ".git/index", ".git/packed-refs", ".git/shallow",
    ".git/info/attributes", ".git/info/exclude", ".git/info/sparse-checkout", ".git/refs/heads/x",
    ".git/objects/info/alternates", ".git/included", ".gitattributes", ".gitignore", ".gitmodules",
    "folder/.gitattributes", "folder/deep/.gitignore", "sub/.git/HEAD",
)  # fmt: skip


def _socket(place: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        here = Path.cwd()
        os.chdir(place.parent)  # a socket's path has at most 107 bytes
        try:
            listener.bind(place.name)
        finally:
            os.chdir(here)


def _link_to_pipe(place: Path) -> None:
    (pipe := place.parents[len(place.parts) - place.parts.index("repo") - 1] / "pipe")
    os.mkfifo(pipe)
    place.symlink_to(pipe)


def _huge(place: Path) -> None:
    with place.open("wb") as file:
        file.truncate(1 << 40)


ENDLESS = {
    "a named pipe": os.mkfifo,
    "a socket": _socket,
    "a device": lambda place: place.symlink_to("/dev/zero"),
    "a link to a named pipe": _link_to_pipe,
    "larger than": _huge,
}


def _replaced(repo: Path, path: str, make: Callable[[Path], None]) -> Path:
    """The repository with something else in the place of one of its files."""
    write(repo, {"folder/deep/a.txt": "a\n"})
    git(repo, "init", "-q", "sub")
    write(repo / "sub", {"b.txt": "b\n"})
    commit_all(repo / "sub")
    commit_all(repo)
    git(repo, "config", "include.path", "included")
    write(repo, {".git/included": "[user]\n\tname = Included\n"})
    place = repo / path
    place.parent.mkdir(exist_ok=True)
    place.unlink(missing_ok=True)
    make(place)
    return place


@pytest.mark.parametrize("kind", ENDLESS)
@pytest.mark.parametrize("path", OPENED_BY_GIT)
def test_a_file_that_may_never_end_is_named(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch, path: str, kind: str
) -> None:
    """git would open it, and wait for ever or fill the memory."""
    if kind == "larger than" and path == ".git/index":
        pytest.skip("git maps it and reads its first bytes")
    monkeypatch.setattr("fallback_tier.gates.trees.isolation.GIT_TIMEOUT_S", 5.0)
    place = _replaced(scenario.repo, path, ENDLESS[kind])
    with pytest.raises(RepositoryError, check=OfKind("endless_file")) as caught:
        look_at(scenario.repo, SubprocessClients(), Settings())
    assert str(place) in str(caught.value)
    assert kind.removeprefix("a link to ") in str(caught.value)


def test_a_pipe_in_the_place_of_a_tracked_file_is_a_change(scenario: Scenario) -> None:
    (scenario.repo / "pypi.txt").unlink()
    os.mkfifo(scenario.repo / "pypi.txt")
    with pytest.raises(RepositoryError, check=OfKind("dirty"), match=r"pypi\.txt"):
        look_at(scenario.repo, SubprocessClients(), Settings())


@pytest.mark.parametrize("path", [".gitattributes", ".git/HEAD", ".git/info/exclude"])
@pytest.mark.parametrize("verb", ["plan", "fix", "batch", "attempt"])
def test_no_command_waits_for_a_named_pipe(
    scenario: Scenario, tmp_path: Path, verb: str, path: str
) -> None:
    _replaced(scenario.repo, path, os.mkfifo)
    lists = []
    for name in ("left", "right"):
        lists += ["--advisory", tmp_path / f"{name}.json"]
        lists[-1].write_text(osv(name))
    state = ("--state-dir", tmp_path / "state")
    if verb == "attempt":
        request = {"advisory": json.loads(osv("left")), "repository": str(scenario.repo)}
        ended = run("attempt", "--offline", *state, stdin=json.dumps(request))
    else:
        words = ["plan"] if verb == "plan" else ["fix", "--offline", *state]
        ended = run(words[0], scenario.repo, *(lists if verb == "batch" else lists[:2]), *words[1:])
    assert ended.code == exit_codes.BAD_INPUT
    assert "is a named pipe" in ended.err + ended.out


def test_files_that_no_git_command_opens_may_be_anything(scenario: Scenario) -> None:
    """A monitor's socket and an editor's pipe are no fault, nor is a list without an end that is empty."""
    for path in (".mailmap", ".git/gitk.cache", ".git/hooks/pipe", "pipe", "untracked/pipe"):
        (scenario.repo / path).parent.mkdir(exist_ok=True)
        os.mkfifo(scenario.repo / path)
    _socket(scenario.repo / ".git" / "fsmonitor--daemon.ipc")
    exclude = scenario.repo / ".git" / "info" / "exclude"
    exclude.parent.mkdir()
    exclude.symlink_to(os.devnull)
    assert scenario.fix(advisory("A", "left"), commit="") == exit_codes.OK


# --- LFS ------------------------------------------------------------------------------------------

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 5\n".format(
    hashlib.sha256(b"data\n").hexdigest()
)


@pytest.fixture
def lfs(tmp_path: Path) -> Path:
    """A filter as git-lfs is one: pointers are committed, the working tree has the content."""
    program = tmp_path / "lfs.sh"
    program.write_text(
        f"#!/bin/sh\ncat > /dev/null\nif [ $1 = clean ]; then printf '{POINTER}'; else echo data; fi\n"
    )
    program.chmod(0o755)
    (tmp_path / "home").mkdir()
    return program


def _lfs_checkout(place: Path, program: Path) -> Path:
    write(place, {"large.bin": "data\n", ".gitattributes": "*.bin filter=lfs\n", **FILES})
    settings = [f"filter.lfs.{way}={program} {way}" for way in ("clean", "smudge")]
    git(place.parent, "init", "-q", str(place))
    words = [word for setting in settings for word in ("-c", setting)]
    git(place, *words, "add", "-A")
    git(place, *words, "commit", "-q", "-m", "base")
    assert git(place, "show", "HEAD:large.bin") == POINTER
    assert (place / "large.bin").read_text() == "data\n"
    return place


def test_large_files_of_a_user_with_git_lfs(
    tmp_path: Path, lfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The filter is the user's own: it runs, and the content doesn't count as a change."""
    lines = "".join(f"\t{way} = {lfs} {way}\n" for way in ("clean", "smudge"))
    (tmp_path / "home" / ".gitconfig").write_text(f'[filter "lfs"]\n{lines}\trequired = true\n')
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    scenario = Scenario(tmp_path / "scenario")
    scenario.repo = _lfs_checkout(tmp_path / "repo", lfs)
    _touch(scenario.repo)
    assert scenario.fix(advisory("A", "left")) == exit_codes.OK
    assert scenario.read("pypi.txt") == FIXED
    assert scenario.read("large.bin") == "data\n"


def test_large_files_whose_filter_only_the_repository_names(
    tmp_path: Path, lfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `git lfs install --local` does it: what a pointer names is compared, and no filter runs."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    repo = _lfs_checkout(tmp_path / "repo", lfs)
    for way in ("clean", "smudge"):
        git(repo, "config", f"filter.lfs.{way}", f"{lfs} {way}")
    os.utime(repo / "large.bin", (1, 1))
    git(repo, "status")  # git looks into it once, and then goes by its times
    assert look_at(repo, SubprocessClients(), Settings()).root == repo
    os.utime(repo / "large.bin", (2, 2))
    assert look_at(repo, SubprocessClients(), Settings()).root == repo
    (repo / "large.bin").write_text("atad\n")
    with pytest.raises(RepositoryError, check=OfKind("dirty"), match=r"large\.bin") as caught:
        look_at(repo, SubprocessClients(), Settings())
    assert "git config --global filter.lfs.clean" in caught.value.next_step
