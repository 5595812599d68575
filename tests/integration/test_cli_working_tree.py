"""Commands in a folder of a repository, a plan of uncommitted changes, and what -q and -v show."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fallback_tier.cli import exit_codes
from tests.e2e.command import Ended, osv, repository, run
from tests.fakes.repository import git, write

FILES = {
    "requirements.txt": "left==1.0.0\n",
    "notes/index.txt": "",
    "extra/requirements.txt": "left==1.0.0\n",
}
FROM_FILES = ("--no-resolve", "--offline")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "advisory.json").write_text(osv("left"))
    return repository(tmp_path / "repo", FILES)


def plan(root: Path, *words: str, cwd: Path | None = None, **env: str) -> Ended:
    advisory = str(root.parent / "advisory.json")
    return run("plan", *words, "--advisory", advisory, *FROM_FILES, cwd=cwd, env=env or None)


def moved(document: Any) -> set[str]:
    return {move["manifest"] for fix in document["fixes"] for move in fix["moves"]}


def test_a_folder_of_a_repository_means_the_repository(root: Path) -> None:
    """From inside, by name, and by a link that leads there."""
    whole = plan(root, str(root), "--json").json
    (root.parent / "link").symlink_to(root / "notes")
    for ended in (
        plan(root, str(root / "notes"), "--json"),
        plan(root, "--json", cwd=root / "notes"),
        plan(root, "--json", cwd=root),
        plan(root, str(root.parent / "link"), "--json"),
    ):
        assert ended.code == exit_codes.OK
        assert ended.json == whole
    assert moved(whole) == {"requirements.txt", "extra/requirements.txt"}


def test_a_folder_in_no_repository_is_explained_by_git(root: Path) -> None:
    ended = plan(root, str(root.parent), "--json")
    assert (ended.code, ended.json["error"]["code"]) == (exit_codes.BAD_INPUT, "repository")


def test_a_plan_reads_uncommitted_changes_and_names_them(root: Path) -> None:
    write(root, {"requirements.txt": "left==1.0.1\n"})
    git(root, "rm", "-q", "extra/requirements.txt")
    ended = plan(root, str(root), "--json")
    assert ended.code == exit_codes.OK
    assert set(ended.json["uncommitted"]) == {"requirements.txt"} | (
        set(ended.json["uncommitted"]) & {"extra/requirements.txt"}
    )
    (move,) = [move for fix in ended.json["fixes"] for move in fix["moves"]]
    assert (move["manifest"], move["before"]) == ("requirements.txt", ["1.0.1"])
    text = plan(root, str(root)).out
    assert "requirements.txt" in text.split("\n")[1]


def test_a_manifest_that_was_deleted_without_git_is_not_read(root: Path) -> None:
    (root / "extra" / "requirements.txt").unlink()
    ended = plan(root, str(root), "--json")
    assert ended.json["uncommitted"] == ["extra/requirements.txt"]
    assert moved(ended.json) == {"requirements.txt"}


def test_a_clean_tree_has_no_uncommitted_files(root: Path) -> None:
    assert plan(root, str(root), "--json").json["uncommitted"] == []


def test_settings_of_a_plan_are_the_commits(root: Path) -> None:
    """An uncommitted file of settings is not read, whatever it says."""
    write(root, {".fallback-tier.toml": "= broken"})
    assert plan(root, str(root)).code == exit_codes.OK


@pytest.mark.parametrize("option", ["-q", "-v"])
def test_quiet_and_verbose_change_neither_result_nor_code(root: Path, option: str) -> None:
    for words in ((), ("--json",)):
        plain, other = plan(root, str(root), *words), plan(root, str(root), option, *words)
        assert (other.code, other.out) == (plain.code, plain.out)
    assert not plan(root, str(root), "-q").err


def test_verbose_shows_where_settings_come_from(root: Path) -> None:
    """And -q nothing but the result, here of a fix that finds nothing to do."""
    (root.parent / "advisory.json").write_text(osv("other"))
    words = ("fix", str(root), "--advisory", str(root.parent / "advisory.json"), "--offline")
    words += ("--no-sandbox", "--state-dir", str(root.parent / "state"))
    env = {"FALLBACK_TIER_MAX_TOKENS": "1000"}
    plain, verbose, quiet = (run(*words, *more, env=env) for more in ((), ("-v",), ("-q",)))
    assert {it.code for it in (plain, verbose, quiet)} == {plain.code}
    results = [re.sub(r"fix-[0-9a-f]+", "FIX", it.out) for it in (plain, verbose, quiet)]
    assert results == [results[0]] * 3
    assert "FALLBACK_TIER_MAX_TOKENS" in verbose.err
    assert "FALLBACK_TIER_MAX_TOKENS" not in plain.err
    assert not quiet.err
    assert run(*words, "-q", "-v").code == exit_codes.BAD_INPUT


def test_no_color_counts_even_if_colour_is_forced(root: Path) -> None:
    colour = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3|4|9|10)[0-9](?:;[0-9;]*)?m")
    write(root, {"requirements.txt": "left==1.0.1\n"})
    (root.parent / "advisory.json").write_text(osv("left", fixed=None))
    forced = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    coloured, without = (
        plan(root, str(root), **forced),
        plan(root, str(root), **forced, NO_COLOR="1"),
    )
    assert colour.search(coloured.out)
    assert not colour.search(without.out + without.err)
    assert json.loads(plan(root, str(root), "--json", **forced).out)
