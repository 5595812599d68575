"""Shell completion, asked of a real bash."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.command import run

#: What bash sets before it calls a completion, and where it looks afterwards.
ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
name=$(complete -p fallback-tier | sed 's/.*-F \\([^ ]*\\).*/\\1/')
"$name" fallback-tier "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ended = run("completion", "bash")
    assert ended.code == 0
    path = tmp_path_factory.mktemp("completion") / "fallback-tier.bash"
    path.write_text(ended.out)
    return path


def completions(script: Path, *words: str, cwd: Path | None = None) -> set[str]:
    """What bash offers for the last word."""
    bash = shutil.which("bash")
    assert bash
    done = subprocess.run(
        [bash, "-c", ASK, "ask", script, "fallback-tier", *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=cwd,
        timeout=60,
    )
    assert not done.stderr
    return set(done.stdout.split())


def test_commands_and_their_verbs(script: Path) -> None:
    """Also those that a command adds when it is given."""
    assert completions(script, "re") == {"resume", "review"}
    assert completions(script, "review", "re") == {"reject", "reopen"}
    assert "verify" in completions(script, "audit", "")


def test_options_and_their_values(script: Path) -> None:
    assert completions(script, "fix", "--max-usd") == {"--max-usd", "--max-usd-per-day"}
    assert completions(script, "plan", "--max-usd") == set()
    assert completions(script, "fix", ".", "--prefer", "") == {"parent", "override"}
    assert completions(script, "completion", "z") == {"zsh"}


def test_paths_are_completed_as_such(script: Path, tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text("")
    (tmp_path / "settings").mkdir()
    assert completions(script, "fix", "--config", "sett", cwd=tmp_path) == {
        "settings.toml",
        "settings",
    }
    assert completions(script, "fix", "--state-dir", "sett", cwd=tmp_path) == {"settings"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_the_same_commands(shell: str) -> None:
    ended = run("completion", shell)
    assert ended.code == 0
    for word in ("raise-budget", "max-usd-per-day", "doctor"):
        assert word in ended.out
    if program := shutil.which(shell):  # its own check of the syntax
        subprocess.run([program, "-n"], input=ended.out, text=True, check=True, timeout=60)


def test_another_shell_is_refused_with_those_that_there_are() -> None:
    ended = run("completion", "fsh")
    assert ended.code == 2
    assert "fish" in ended.next_step
