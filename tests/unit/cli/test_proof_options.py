"""--proof and its files, before any repository is looked at."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fallback_tier.cli.main import build_parser
from fallback_tier.cli.options import proof_of
from fallback_tier.errors import InputError
from fallback_tier.gates.builtin.proof_given import PROOF_TIMEOUT_S, Proof
from fallback_tier.wiring import Configuration

Given = Callable[..., Proof | None]


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Given:
    (tmp_path / "p.py").write_bytes(b"\xffproof")
    (tmp_path / "a=b.py").write_bytes(b"odd")
    (tmp_path / "large").write_bytes(b"")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(16 * 1024 * 1024 + 1)
    monkeypatch.chdir(tmp_path)

    def parsed(*options: str) -> Proof | None:
        return proof_of(build_parser().parse_args(["fix", "r", "--advisory", "a", *options]))

    return parsed


def test_none_is_none(given: Given) -> None:
    assert given() is None


def test_a_command_is_split_as_a_shell_does_and_none_is_started(given: Given) -> None:
    proof = given("--proof", "sh -c 'exit $X; echo' *.py", "--proof-timeout", "1.5")
    assert proof == Proof(("sh", "-c", "exit $X; echo", "*.py"), {}, 1.5)


def test_its_last_line_goes_with_it(given: Given) -> None:
    proof = given("--proof", "true", "--proof-end", "no flaw")
    assert proof is not None
    assert proof.end == "no flaw"
    assert proof.digest != Proof(("true",)).digest


def test_files_go_to_the_root_or_where_they_are_told(given: Given) -> None:
    options = ["--proof-file", "p.py", "--proof-file", "a=b.py", "--proof-file", "a=b.py=x/y.py"]
    proof = given("--proof", "true", *options)
    assert proof is not None
    assert proof.files == {"p.py": b"\xffproof", "a=b.py": b"odd", "x/y.py": b"odd"}
    assert proof.timeout_s == PROOF_TIMEOUT_S


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--proof", "'"], "not a command: no closing quotation"),
        (["--proof", " "], "The proof has no command"),
        (["--proof", "a\0b"], "a NUL character"),
        (["--proof", "x", "--proof-file", "absent.py"], "absent.py: No such file or directory"),
        (["--proof", "x", "--proof-file", "absent.py=p.py"], "absent.py: No such file"),
        (["--proof", "x", "--proof-file", "large"], "larger than 16,777,216 bytes"),
        (["--proof", "x", "--proof-file", "p.py=../p.py"], "not at a place inside"),
        (["--proof", "x", "--proof-file", "p.py=/p.py"], "not at a place inside"),
        (["--proof", "x", "--proof-file", "p.py=.git/p.py"], "not at a place inside"),
        (["--proof", "x", "--proof-file", "p.py", "--proof-file", "a=b.py=p.py"], "another file"),
        (["--proof-file", "p.py"], "--proof-file is about a proof, and no proof is given"),
        (["--proof-timeout", "5"], "--proof-timeout is about a proof"),
    ],
)
def test_what_can_not_be_is_named(given: Given, options: list[str], problem: str) -> None:
    with pytest.raises(InputError) as caught:
        given(*options)
    assert problem in caught.value.problem
    assert caught.value.next_step


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "3601", "soon"])
def test_a_timeout_that_is_none_is_refused(
    given: Given, seconds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        given("--proof", "x", f"--proof-timeout={seconds}")
    assert "is not a number of seconds up to 3600" in capsys.readouterr().err


def test_a_resumed_run_gets_the_same_proof_and_gates(given: Given, tmp_path: Path) -> None:
    """What is recorded of a configuration is JSON, and says all of it, bytes included."""
    gates = [{"name": "lint", "command": ["true"], "timeout_s": 5}]
    began = Configuration.model_validate(
        {
            "state_dir": tmp_path,
            "gates": gates,
            "proof": given("--proof", "x", "--proof-file", "p.py"),
        }
    )
    recorded = json.loads(json.dumps(began.recorded()))
    resumed = Configuration.model_validate({**recorded, "state_dir": tmp_path})
    assert (resumed.gates, resumed.proof) == (began.gates, began.proof)
    assert resumed.proof is not None
    assert resumed.proof.files == {"p.py": b"\xffproof"}
