"""``attempt --serve``: one process, a request a line, an answer a line."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fallback_tier.cli.attempt import MAX_ID_CHARACTERS, MAX_INPUT_BYTES
from tests.e2e.command import SCRIPT, osv, repository, run, snapshot
from tests.fakes.repository import commit_all
from tests.schemas.checking import check_output
from tests.waiting import PATIENCE_S, becomes, next_line


class Served:
    """A serving process, asked line by line."""

    def __init__(self, state: Path, *options: str, git: Path | None) -> None:
        path = os.environ["PATH"]
        self.process = subprocess.Popen(
            [SCRIPT, "attempt", "--serve", "--offline", "--state-dir", state, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PATH": path if git is None else f"{git}:{path}"},
        )

    def say(self, line: bytes | dict[str, Any]) -> None:
        assert self.process.stdin is not None
        text = line if isinstance(line, bytes) else json.dumps(line).encode()
        self.process.stdin.write(text + b"\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        line = next_line(self.process)
        check_output(["attempt", "--serve"], line.decode())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, line: bytes | dict[str, Any]) -> dict[str, Any]:
        self.say(line)
        return self.hear()

    def end(self) -> int:
        """Its exit code once its input has ended; it says nothing more."""
        rest, _ = self.process.communicate(timeout=PATIENCE_S)
        assert rest == b""
        return self.process.returncode


@contextmanager
def serving(state: Path, *options: str, git: Path | None = None) -> Iterator[Served]:
    """``git``: a folder where another git is found first."""
    served = Served(state, *options, git=git)
    try:
        yield served
    finally:
        served.process.kill()
        served.process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo", {"requirements.txt": "left==1.0.0\n"})


def request(repo: Path, **more: Any) -> dict[str, Any]:
    ecosystem = "npm" if (repo / "package.json").exists() else "PyPI"
    advisory = json.loads(osv("left", ecosystem=ecosystem))
    return {"advisory": advisory, "repository": str(repo), **more}


def test_a_line_with_a_key_twice_is_refused(tmp_path: Path, repo: Path) -> None:
    with serving(tmp_path / "state") as served:
        text = json.dumps(request(repo, id="b")).encode()
        answer = served.ask(b'{"id": "a", ' + text[1:])
        assert answer["id"] is None
        assert "the key 'id' twice" in answer["error"]["problem"]
        answer = served.ask(text.replace(b'"affected"', b'"affected": [], "affected"', 1))
        assert answer["id"] is None
        assert "the key 'affected' twice" in answer["error"]["problem"]


def test_each_line_is_answered_as_a_separate_process_would(tmp_path: Path, repo: Path) -> None:
    other = repository(tmp_path / "other", {"requirements.txt": "left==1.5.0\nright==1.0\n"})
    before = snapshot(repo)
    npm = repository(tmp_path / "npm", {"package.json": '{"dependencies": {"left": "1.0.0"}}\n'})
    with serving(tmp_path / "state") as served:
        for number, at in enumerate((repo, other, repo, npm, other), start=1):
            answer = served.ask(request(at, id=f"r-{number}"))
            assert (answer["id"], answer["line"]) == (f"r-{number}", number)
            alone = run(
                "attempt",
                "--offline",
                "--state-dir",
                tmp_path / "alone",
                stdin=json.dumps(request(at)),
            )
            assert answer["application"] == alone.json
        assert served.end() == 0
    assert snapshot(repo) == before
    # What was answered is on record, and the record is whole.
    assert run("audit", "verify", "--state-dir", tmp_path / "state").code == 0
    log = run("audit", "log", "--state-dir", tmp_path / "state", "--json").json
    assert len(log["fixes"]) == 5


def test_a_bad_line_is_answered_by_its_error_and_ends_nothing(tmp_path: Path, repo: Path) -> None:
    long_id = "x" * (MAX_ID_CHARACTERS + 1)
    bad: list[tuple[bytes | dict[str, Any], str | int | None, str, str]] = [
        (b"nope", None, "input", "not valid"),
        (b"\xff\xfe", None, "input", "not valid"),
        (b"[" * 100_000, None, "input", "not valid"),
        (b'"text"', None, "input", "not valid"),
        ({"id": "a"}, "a", "input", "advisory: Field required"),
        ({"id": 7, "advisory": {}, "repository": "x"}, 7, "advisory", "is not an OSV record"),
        (request(repo, id="b", more=1), "b", "input", "more: Extra inputs"),
        (request(repo, id=long_id), None, "input", "id"),
        (request(repo, id=True), None, "input", "id"),
        (request(repo, id=2**53), None, "input", "id"),
        (request(tmp_path / "absent", id="c"), "c", "repository", "absent"),
        (
            b'{"id": "d", "advisory": "' + b"x" * MAX_INPUT_BYTES + b'"}',
            None,
            "input",
            "larger than 8,388,608 bytes",
        ),
    ]
    with serving(tmp_path / "state") as served:
        for number, (line, identifier, code, problem) in enumerate(bad, start=1):
            answer = served.ask(line)
            assert (answer["id"], answer["line"]) == (identifier, number), answer
            assert answer["error"]["code"] == code, answer
            assert problem in answer["error"]["problem"], answer
            assert answer["error"]["next_step"], answer
        served.say(b"  ")  # counted as a line, and not answered
        answer = served.ask(request(repo, id="last"))
        assert (answer["id"], answer["line"]) == ("last", len(bad) + 2)
        assert answer["application"]["outcome"] == "applied"
        assert served.end() == 0


def test_nothing_is_lost_at_the_end_of_input(tmp_path: Path, repo: Path) -> None:
    """Lines that wait when the input ends are answered, also the last one without its line end."""
    lines = "\n".join(json.dumps(request(repo, id=number)) for number in range(5))
    with serving(tmp_path / "state") as served:
        out, _ = served.process.communicate(lines.encode(), timeout=PATIENCE_S)
    answers = [json.loads(line) for line in out.splitlines()]
    assert [answer["id"] for answer in answers] == [0, 1, 2, 3, 4]
    assert {answer["application"]["outcome"] for answer in answers} == {"applied"}
    assert served.process.returncode == 0


def test_told_to_end_it_answers_what_it_has_begun(tmp_path: Path, repo: Path) -> None:
    """SIGTERM while an attempt runs: its answer comes, and no further line is read."""
    asked = tmp_path / "asked"
    slow = stand_in(tmp_path, f"touch {asked}; sleep 2")
    with serving(tmp_path / "state", git=slow) as served:
        served.say(request(repo, id="a"))
        served.say(request(repo, id="b"))
        becomes(asked.exists, "the attempt has asked git")
        served.process.send_signal(signal.SIGTERM)
        answer = served.hear()
        assert (answer["id"], answer["application"]["outcome"]) == ("a", "applied")
        assert served.end() == 0


def stand_in(place: Path, first: str) -> Path:
    """A folder with a git that does something first."""
    found = shutil.which("git")
    git = place / "stand-in" / "git"
    git.parent.mkdir()
    git.write_text(f'#!/bin/sh\n{first}\nexec {found} "$@"\n')
    git.chmod(0o755)
    return git.parent


def test_told_to_end_while_it_waits_it_ends(tmp_path: Path, repo: Path) -> None:
    with serving(tmp_path / "state") as served:
        assert "application" in served.ask(request(repo))
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(PATIENCE_S) == 0


def test_an_option_that_can_not_be_is_refused_before_the_first_line(tmp_path: Path) -> None:
    ended = run("attempt", "--serve", "--script", "/absent", "--state-dir", tmp_path / "state")
    assert ended.code == 2
    assert "/absent" in ended.problem


def test_what_changed_since_the_last_line_is_seen(tmp_path: Path, repo: Path) -> None:
    """A new commit of the same folder: nothing of an attempt reaches the next."""
    found = []
    with serving(tmp_path / "state") as served:
        for number, text in enumerate(
            ("left==1.0.0\n", "right==1.0\nleft==1.5.0\n", "left==2.0.0\n")
        ):
            (repo / "requirements.txt").write_text(text)
            if number:
                commit_all(repo)
            found.append(served.ask(request(repo))["application"])
            alone = run(
                *("attempt", "--offline", "--state-dir", tmp_path / "alone"),
                stdin=json.dumps(request(repo)),
            )
            assert found[-1] == alone.json
    assert found[0]["diff"] != found[1]["diff"]
    assert [each["outcome"] for each in found] == ["applied", "applied", "refused"]


def test_what_is_printed_is_no_answer_and_takes_no_request(tmp_path: Path) -> None:
    """Of this process as of a program that it starts."""
    program = """
import subprocess
from fallback_tier.cli.attempt import protocol_streams
with protocol_streams() as (requests, answers):
    for line in requests:
        print("noise")
        subprocess.run(["sh", "-c", "echo more noise; cat"])
        answers.write(line.upper())
        answers.flush()
print("afterwards")
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        input="one\ntwo\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stdout == "ONE\nTWO\nafterwards\n"
    assert sorted(done.stderr.split("\n")) == ["", *["more noise"] * 2, *["noise"] * 2]
