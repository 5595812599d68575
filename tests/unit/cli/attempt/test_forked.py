"""Work in a child: nothing of it stays, whatever it does.

Each case is a process of its own: the parent of a fork must have one thread, and a test's has more.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.waiting import PATIENCE_S, becomes

#: What a case's program begins with. ``told`` prints how a piece of work ended.
_BEGIN = """
import os, signal, subprocess, sys, time
from fallback_tier.cli.attempt import forked
from fallback_tier.cli.attempt.forked import AttemptEndedError, in_a_child

forked.GRACE_S = 0.5

def told(work, limit=60.0):
    try:
        print(in_a_child(work, time_limit_s=limit).decode())
    except AttemptEndedError as error:
        print(error.problem)
"""


def case(body: str) -> list[str]:
    """The lines that the program printed; it ends well."""
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + body],
        input="the next request",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_no_state_of_one_piece_of_work_reaches_the_next() -> None:
    body = """
seen = []
def work():
    seen.append(1)
    os.environ["LEFT"] = os.environ.get("LEFT", "") + "x"
    os.chdir("/")
    return f"{len(seen)} {os.environ['LEFT']}".encode()
here = os.getcwd()
told(work); told(work)
print(seen, "LEFT" in os.environ, os.getcwd() == here)
"""
    assert case(body) == ["1 x", "1 x", "[] False True"]


def test_what_work_prints_is_no_answer_and_its_input_is_empty() -> None:
    body = """
def work():
    print("noise", flush=True)
    subprocess.run(["echo", "more noise"])
    return repr(sys.stdin.read()).encode()
told(work)
"""
    assert case(body) == ["''"]


def test_what_work_prints_is_not_lost() -> None:
    """Standard output is a buffer, and the child ends without what ends a Python program."""
    body = (
        _BEGIN
        + """
def work():
    print("noise")
    return b"done"
told(work)
"""
    )
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-c", body], capture_output=True, text=True, timeout=120, env=env
    )
    assert (done.stdout, done.stderr) == ("done\n", "noise\n")


def test_work_that_raises_or_dies_is_told_and_the_next_is_done() -> None:
    body = """
def raises():
    raise ValueError("a defect")
told(raises)
told(lambda: os.kill(os.getpid(), signal.SIGKILL))
told(lambda: os._exit(3))
told(lambda: b"well")
"""
    assert case(body) == [
        "The attempt's process ended with 1 and no answer.",
        "The attempt's process died by signal 9.",
        "The attempt's process ended with 3 and no answer.",
        "well",
    ]


def test_an_answer_has_a_limit() -> None:
    body = """
forked.MAX_ANSWER_BYTES = 100_000
told(lambda: b"x" * 200_000)
told(lambda: b"x" * 5)
"""
    assert case(body) == ["The attempt's answer is larger than 100,000 bytes.", "xxxxx"]


def test_the_time_limit_ends_work_and_all_that_it_started(tmp_path: Path) -> None:
    """Also a program in a session of its own, and work that does not listen."""
    left = tmp_path / "pids"
    body = f"""
def deaf():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sleeper = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    with open({str(left)!r}, "a") as pids:
        pids.write(f"{{os.getpid()}} {{sleeper.pid}}\\n")
    while True:
        time.sleep(1)
told(deaf, limit=3.0)
told(lambda: b"well")
"""
    assert case(body) == ["The attempt was ended after 3 s, its limit.", "well"]
    pids = [int(word) for word in left.read_text().split()]
    assert len(pids) == 2
    becomes(lambda: all(map(gone, pids)), "both are gone")


def test_work_whose_time_is_over_may_close_what_it_has_open(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    body = f"""
def work():
    try:
        time.sleep(1000)
    finally:
        open({str(closed)!r}, "w").close()
told(work, limit=1.0)
"""
    assert case(body) == ["The attempt was ended after 1 s, its limit."]
    assert closed.exists()


def test_work_does_not_outlive_the_process_that_asked_for_it(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    body = f"""
def work():
    with open({str(begun)!r} + ".new", "w") as pid:
        pid.write(str(os.getpid()))
    os.rename({str(begun)!r} + ".new", {str(begun)!r})
    time.sleep(1000)
told(work)
"""
    parent = subprocess.Popen([sys.executable, "-c", _BEGIN + body], stderr=subprocess.DEVNULL)
    try:
        becomes(begun.exists, "the work has begun")
    finally:
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait(PATIENCE_S)
    becomes(lambda: gone(int(begun.read_text())), "the work is gone")


def test_an_interruption_ends_the_work(tmp_path: Path) -> None:
    """Ctrl-C reaches the parent alone: the child leads a group of its own."""
    begun = tmp_path / "begun"
    # What a shell starts in the background ignores interruptions, and this would wait for its limit.
    body = f"""
signal.signal(signal.SIGINT, signal.default_int_handler)
def work():
    with open({str(begun)!r} + ".new", "w") as pid:
        pid.write(str(os.getpid()))
    os.rename({str(begun)!r} + ".new", {str(begun)!r})
    time.sleep(1000)
told(work, limit=1000)
"""
    parent = subprocess.Popen([sys.executable, "-c", _BEGIN + body], stderr=subprocess.DEVNULL)
    becomes(begun.exists, "the work has begun")
    pid = int(begun.read_text())
    assert os.getpgid(pid) == pid
    parent.send_signal(signal.SIGINT)
    parent.wait(PATIENCE_S)
    assert gone(pid)
