"""A launcher with something to lose: makes it, then lets the escapes try, inside and plainly.

``python -m tests.campaigns.hostile.escapes.launch FOLDER SETUID``, in an environment that holds
ESCAPE_SECRET, as whichever user. Prints the outcomes of each escape as JSON.
"""

import json
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fallback_tier.sandbox.confinement import MAX_TMPFS_BYTES
from fallback_tier.sandbox.launching import MAX_FILE_BLOCKS, data_kib
from fallback_tier.sandbox.runners import (
    BubblewrapSandbox,
    Hardening,
    find_bwrap,
)
from tests.campaigns.hostile.escapes.base import Facts

HERE = Path(__file__).parent
TIMEOUT_S = 120.0

#: Far below the real limit: outside, where nothing stops it, the escape really starts twice as many.
PROCESSES = 60
MEMORY_BYTES = 256 * 2**20


@contextmanager
def surroundings(folder: Path, setuid: str) -> Iterator[Facts]:
    """A worktree, and around it what no target may reach."""
    tree = folder / "worktree"
    (tree / ".git").mkdir(parents=True)
    (tree / ".git" / "config").write_text("[core]\n")
    (folder / "other-worktree").mkdir()
    (folder / "home").mkdir()
    for place in ("private", "readable", "other-worktree/file", "home/.credentials"):
        (folder / place).write_text("not for targets\n")
    mark = f"7{uuid.uuid4().int % 10**9:09d}"  # a number of seconds that nobody else sleeps
    abstract = f"fallback-tier-{uuid.uuid4()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as hidden,
        socket.socket(socket.AF_UNIX) as named,
        subprocess.Popen(["sleep", mark]) as bystander,
        (folder / "private").open() as inherited,
    ):
        hidden.bind("\0" + abstract)
        named.bind(str(folder / "socket"))
        hidden.listen(1000)
        named.listen(1000)
        os.set_inheritable(inherited.fileno(), True)
        try:
            yield {
                "secret": os.environ["ESCAPE_SECRET"],
                "worktree": str(tree),
                "private": str(folder / "private"),
                "readable": str(folder / "readable"),
                "socket": str(folder / "socket"),
                "abstract": abstract,
                "port": server.getsockname()[1],
                "bystander": bystander.pid,
                "bystander_mark": mark,
                "setuid": setuid,
                "home": str(folder / "home"),
                "memory": data_kib(in_cgroup=True) * 1024 + 1,
                "file": 4 * MAX_FILE_BLOCKS * 512,
                "tmpfs": MAX_TMPFS_BYTES,
                "processes": 2 * PROCESSES,
                "shared": 3 * MEMORY_BYTES // 2,
            }
        finally:
            bystander.kill()


def tried(facts: Facts, folder: Path, hardening: Hardening) -> dict[str, dict[str, str]]:
    """What the escapes came to: ``inside``, ``outside``, and in a ``naive`` sandbox."""
    reported, tree = folder / "facts.json", Path(facts["worktree"])
    reported.write_text(json.dumps(facts))
    code = {"PYTHONPATH": str(HERE.parents[3])}
    command = ["python3", "-m", "tests.campaigns.hostile.escapes", str(reported)]
    readable = [HERE, reported, folder / "readable", Path(facts["setuid"])]
    inside = BubblewrapSandbox(hardening=hardening).run(
        [*command, "inside"], worktree=tree, timeout_s=TIMEOUT_S, env=code, readable=readable
    )
    if not inside.ok:
        raise SystemExit(inside.output)
    naive = [
        str(find_bwrap()),
        "--unshare-pid",
        "--dev-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--clearenv",
    ]
    naive += ["--setenv", "PATH", os.environ["PATH"], "--setenv", *next(iter(code.items()))]
    plain = {
        name: subprocess.run(
            [*before, *command, *after],
            cwd=tree,
            env={**os.environ, **code},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            close_fds=False,
        )
        for name, before, after in (("outside", (), ()), ("naive", naive, ("inside",)))
    }
    found = {name: json.loads(done.stdout) for name, done in plain.items()}
    return {"inside": json.loads(inside.output), **found}


if __name__ == "__main__":
    place = Path(sys.argv[1])
    with surroundings(place, sys.argv[2]) as known:
        small = Hardening(max_processes=PROCESSES, max_memory_bytes=MEMORY_BYTES)
        print(json.dumps(tried(known, place, small)))
