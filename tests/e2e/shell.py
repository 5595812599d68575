"""The command for a shell: a program of its name whose every run is a fork that has it imported already.

It is given no standard input. What a start is like is tested on the console script (``test_cli_startup``).
"""

import json
import socket
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.command import SCRIPT
from tests.e2e.forked import run_forked

#: Without our environment's modules: it starts in a hundredth of a second.
_PROGRAM = """\
#!{python} -ISs
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({address!r})
    asked.sendall(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode())
    asked.shutdown(socket.SHUT_WR)
    code, out, err = json.load(asked.makefile())
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""

#: As ``run``'s.
_HANG_S = 300.0


@contextmanager
def command_for_shells(place: Path) -> Iterator[Path]:
    """A folder for ``PATH``, made at ``place``; it answers until the end, one run after the other."""
    place.mkdir(parents=True)
    address = f"\0{uuid.uuid4().hex}"  # no file's: its path may be too long
    program = place / SCRIPT.name
    program.write_text(_PROGRAM.format(python=sys.executable, address=address))
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        thread = threading.Thread(target=_answer, args=(listening,), daemon=True)
        thread.start()
        try:
            yield place
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(_HANG_S)


def _answer(listening: socket.socket) -> None:
    while True:
        try:
            asked, _ = listening.accept()
        except OSError:  # it was shut down
            return
        with asked, asked.makefile("rw") as stream:
            words, folder, env = json.load(stream)
            ended = run_forked(words, cwd=Path(folder), env=env, stdin="", timeout_s=_HANG_S)
            json.dump(ended, stream)
