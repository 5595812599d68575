"""Clients: what they may know, how they are found, how they end."""

import os
import sys
import time
from pathlib import Path

import pytest

from fallback_audit.evidence.store import MAX_EVIDENCE_BYTES
from fallback_tier.errors import ToolMissingError
from fallback_tier.execution import CommandResult
from fallback_tier.gates.trees.isolation import USERS_CONFIGURATION
from fallback_tier.sandbox import clients as clients_module
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.sandbox.launching import MAX_OUTPUT_BYTES
from fallback_tier.sandbox.process import BoundedOutput
from tests.fakes.repository import commit_all, git, write
from tests.kinds import OfKind

BASE = {"PATH": "/usr/bin:/bin"}


def script(folder: Path, name: str, body: str) -> Path:
    folder.mkdir(exist_ok=True)
    place = folder / name
    place.write_text(f"#!/bin/sh\n{body}\n")
    place.chmod(0o755)
    return place


def run(
    tool: str, body: str, tmp_path: Path, *, timeout_s: float = 30, **env: str
) -> CommandResult:
    folder = script(tmp_path / "bin", tool, body).parent
    environ = {**BASE, **env, "PATH": f"{folder}:/usr/bin:/bin"}
    clients = SubprocessClients(environ, python=tmp_path / "python")
    return clients.run(tool, ["--flag"], cwd=tmp_path, timeout_s=timeout_s)


SECRETS = {
    "ANTHROPIC_API_KEY": "k1", "ANTHROPIC_AUTH_TOKEN": "k2", "OPENAI_API_KEY": "k3",
    "AWS_SECRET_ACCESS_KEY": "k4", "GITHUB_TOKEN": "k5", "UV_PUBLISH_TOKEN": "k6",
    "NODE_OPTIONS": "--require=/x", "PYTHONPATH": "/x", "LD_PRELOAD": "/x", "GIT_DIR": "/x",
}  # fmt: skip
COMMON = {
    "HOME": "/h", "LANG": "C.UTF-8", "LC_ALL": "C", "https_proxy": "p", "NO_PROXY": "n",
    "SSL_CERT_FILE": "c", "NODE_EXTRA_CA_CERTS": "c",
}  # fmt: skip
NPM = {"npm_config_registry": "r", "NPM_CONFIG_CACHE": "c", "NPM_TOKEN": "t"}
OWN = {
    "npm": NPM,
    "node": NPM | {"YARN_REGISTRY": "y"},  # it runs yarn and pnpm
    "uv": {"UV_INDEX_URL": "r", "UV_DEFAULT_INDEX": "d", "PIP_INDEX_URL": "p"},
    "other": {},
}


@pytest.mark.parametrize("tool", OWN)
def test_a_client_knows_what_is_common_and_its_own_and_no_secret(tool: str, tmp_path: Path) -> None:
    everything = SECRETS | COMMON | {k: v for own in OWN.values() for k, v in own.items()}
    result = run(tool, "env", tmp_path, **everything)
    seen = dict(line.split("=", 1) for line in result.output.splitlines())
    names = set(seen) - {"PATH", "PWD", "OLDPWD", "SHLVL", "_"}
    ours = (
        {"NODE_OPTIONS", "GIT_ALLOW_PROTOCOL"} if tool in {"npm", "node"} else set()
    )  # what keeps it from hosts
    assert names == {*COMMON, *OWN[tool], *ours}
    assert "/x" not in seen.get("NODE_OPTIONS", "")


def test_the_environment_that_was_given_is_the_one_that_counts(tmp_path: Path) -> None:
    """The alarm of the test above: without the allow-list the secret would be seen."""
    environ = {**BASE, "ANTHROPIC_API_KEY": "k1"}
    clients = SubprocessClients(environ)
    env = {"ANTHROPIC_API_KEY": environ["ANTHROPIC_API_KEY"]}
    seen = clients.run("env", [], cwd=tmp_path, timeout_s=30, env=env).output
    assert "ANTHROPIC_API_KEY=k1" in seen


def test_an_empty_value_removes_a_variable(tmp_path: Path) -> None:
    clients = SubprocessClients({**BASE, "LANG": "C.UTF-8"})
    result = clients.run("env", [], cwd=tmp_path, timeout_s=30, env={"LANG": "", "EXTRA": "1"})
    assert "LANG" not in result.output
    assert "EXTRA=1" in result.output


def test_output_is_joined_stdin_closed_and_the_exit_code_told(tmp_path: Path) -> None:
    result = run("npm", "cat; echo out; echo err >&2; exit 3", tmp_path)
    assert sorted(result.output.splitlines()) == ["err", "out"]
    assert (result.exit_code, result.ok, result.timed_out) == (3, False, False)
    assert result.argv == ("npm", "--flag")


def test_uv_beside_our_python_comes_first(tmp_path: Path) -> None:
    script(tmp_path / "bin", "uv", "echo path")
    script(tmp_path / "venv", "uv", "echo beside")
    environ = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}

    def reported(python: Path) -> str:
        clients = SubprocessClients(environ, python=python)
        return clients.run("uv", [], cwd=tmp_path, timeout_s=30).output.strip()

    assert reported(tmp_path / "venv" / "python") == "beside"
    assert reported(tmp_path / "nowhere" / "python") == "path"


@pytest.mark.parametrize("tool", ["git", "npm", "uv", "unknown"])
def test_a_missing_client_is_said_with_the_next_step(tool: str, tmp_path: Path) -> None:
    clients = SubprocessClients({"PATH": str(tmp_path)}, python=tmp_path / "python")
    with pytest.raises(ToolMissingError, check=OfKind("not_on_path"), match=tool) as caught:
        clients.run(tool, [], cwd=tmp_path, timeout_s=30)
    assert "nstall" in caught.value.next_step


def test_a_client_is_never_taken_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path, "npm", "echo planted")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ToolMissingError):
        SubprocessClients({"PATH": "."}).run("npm", [], cwd=tmp_path, timeout_s=30)


def test_a_file_that_can_not_be_started_is_a_missing_tool(tmp_path: Path) -> None:
    place = script(tmp_path / "bin", "npm", "")
    place.write_bytes(b"\0not a program")
    clients = SubprocessClients({"PATH": str(place.parent)})
    with pytest.raises(ToolMissingError, check=OfKind("not_startable")):
        clients.run("npm", [], cwd=tmp_path, timeout_s=30)


def ends(pid: str) -> bool:
    """Gone, or only its exit status is left. A killed process dies when it is next scheduled."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_the_wall_clock_ends_client_and_children(tmp_path: Path) -> None:
    """With the first limit in which it began: on a busy machine a start takes its time."""
    child = tmp_path / "child"
    for limit_s in (1, 10, 100):
        result = run("npm", "sleep 600 & echo $! > child; sleep 600", tmp_path, timeout_s=limit_s)
        assert result.timed_out
        if child.exists() and child.read_text().strip():
            break
    assert ends(child.read_text().strip())


def test_what_a_client_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    result = run("npm", "sleep 600 & echo $!", tmp_path)
    assert result.ok
    assert ends(result.output.strip())


def test_output_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients_module, "MAX_CLIENT_OUTPUT_BYTES", 4_000)
    result = run(
        "npm", "echo first; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo last", tmp_path
    )
    assert result.truncated
    assert len(result.output) < 4_200
    assert result.output.startswith("first")
    assert result.output.endswith("last\n")


def test_bounded_output_keeps_everything_that_fits() -> None:
    output = BoundedOutput(100)
    for _ in range(10):
        output.add(b"0123456789")
    assert output.text() == "0123456789" * 10
    assert not output.truncated
    output.add(b"!")
    assert output.truncated
    assert output.text().count("left out") == 1
    assert "1 bytes left out" in output.text()


# --- git, hardened by construction ----------------------------------------------------------------


def test_git_runs_no_hook_monitor_or_filter(tmp_path: Path) -> None:
    """Each of them alone does run under plain git with the same configuration: the test can fail. More
    kinds, and the places where they can be set: test_git_configuration.py."""
    repo, ran = tmp_path / "repo", tmp_path / "ran"
    program = script(tmp_path / "bin", "program", f'touch "{ran}"; exit 1')
    script(tmp_path / "hooks", "post-checkout", f'touch "{ran}"')
    repo.mkdir()
    write(repo, {"a.txt": "one\n", ".gitattributes": "*.txt filter=f\n"})
    commit_all(repo)
    args = ["checkout", "--force", "--detach", "HEAD"]
    for key, value in (
        ("core.hooksPath", str(tmp_path / "hooks")),
        ("core.fsmonitor", str(program)),
        ("filter.f.smudge", str(program)),
    ):
        git(repo, "config", key, value)
        for env in ({}, USERS_CONFIGURATION):
            (repo / "a.txt").unlink()
            assert SubprocessClients(BASE).run("git", args, cwd=repo, timeout_s=60, env=env).ok
            assert (repo / "a.txt").read_text() == "one\n"
            assert not ran.exists(), key
        (repo / "a.txt").unlink()
        git(repo, *args)
        assert ran.exists(), key
        git(repo, "config", "--unset", key)
        ran.unlink()


def test_a_filter_of_the_users_own_runs_where_the_users_configuration_counts(
    tmp_path: Path,
) -> None:
    """As git-lfs does, for a working tree of the user's; never in a checkout of ours."""
    home, repo, ran = tmp_path / "home", tmp_path / "repo", tmp_path / "ran"
    program = script(tmp_path / "bin", "program", f'touch "{ran}"; cat')
    home.mkdir()
    (home / ".gitconfig").write_text(f'[filter "f"]\n\tsmudge = {program}\n')
    write(repo, {"a.txt": "one\n", ".gitattributes": "*.txt filter=f\n"})
    commit_all(repo)
    clients = SubprocessClients({**BASE, "HOME": str(home)})
    for env, runs in (({}, False), (USERS_CONFIGURATION, True)):
        (repo / "a.txt").unlink()
        args = ["checkout-index", "--all", "--force"]
        assert clients.run("git", args, cwd=repo, timeout_s=60, env=env).ok
        assert (repo / "a.txt").read_text() == "one\n"
        assert ran.exists() == runs


def test_git_verifies_no_signature(tmp_path: Path) -> None:
    """The repository's own configuration may name the program that does."""
    write(tmp_path, {"a.txt": "a\n"})
    commit_all(tmp_path)
    marker, program = tmp_path / "ran", tmp_path / "verifier"
    program.write_text(f"#!/bin/sh\ntouch {marker}\n")
    program.chmod(0o755)
    git(tmp_path, "config", "log.showSignature", "true")
    git(tmp_path, "config", "gpg.program", str(program))
    head, _, message = git(tmp_path, "cat-file", "commit", "HEAD").partition("\n\n")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----"
    (tmp_path / "commit").write_text(f"{head}\n{signature}\n\n{message}")
    signed = git(tmp_path, "hash-object", "-t", "commit", "-w", "commit").strip()
    for words in (["show", "-s", "--format=%cs"], ["log", "-1", "--format=%s"]):
        assert SubprocessClients().run("git", [*words, signed], cwd=tmp_path, timeout_s=30).ok
    assert not marker.exists()
    git(tmp_path, "show", "-s", signed)  # anybody else's git runs it
    assert marker.exists()


def test_git_fetches_from_nowhere(tmp_path: Path) -> None:
    write(tmp_path / "one", {"a": "x"})
    commit_all(tmp_path / "one")
    clone = ["clone", "--quiet", f"file://{tmp_path / 'one'}", "two"]
    result = SubprocessClients(BASE).run("git", clone, cwd=tmp_path, timeout_s=60)
    assert not result.ok
    assert "not allowed" in result.output


def test_the_default_is_this_process(tmp_path: Path) -> None:
    result = SubprocessClients().run("git", ["--version"], cwd=tmp_path, timeout_s=60)
    assert result.output.startswith("git version")
    assert os.environ["PATH"]
    assert Path(sys.executable).exists()


def test_a_whole_log_goes_on_record_also_where_it_is_no_text() -> None:
    output = BoundedOutput(MAX_OUTPUT_BYTES)
    output.add(b"\xff" * (2 * MAX_OUTPUT_BYTES))
    assert len(output.text().encode()) < MAX_EVIDENCE_BYTES
