"""Inside a peer's sandbox: lead a port of its loopback to the model's socket, and run the peer.

``inside.py SOCKET STOP FOLDER PROGRAM...``. The peer is ended when the file STOP appears. Standard library
alone: the peer's own interpreter runs it.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

#: The exit code of a peer that was ended.
STOPPED = 75

_POLL_S = 0.1


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while content := source.recv(65_536):
            sink.sendall(content)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def _serve(listener: socket.socket, path: str) -> None:
    while True:
        client, _ = listener.accept()
        model = socket.socket(socket.AF_UNIX)
        model.connect(path)
        for ends in ((client, model), (model, client)):
            threading.Thread(target=_pump, args=ends, daemon=True).start()


def main(path: str, stop: str, folder: str, *program: str) -> int:
    """Return the peer's exit code, or STOPPED."""
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_serve, args=(listener, path), daemon=True).start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    env = {**os.environ, "OPENAI_API_BASE": url, "OPENAI_API_KEY": "no-key"}
    peer = subprocess.Popen(
        program, cwd=folder, env=env, stdin=subprocess.DEVNULL, start_new_session=True
    )
    while peer.poll() is None and not Path(stop).exists():
        time.sleep(_POLL_S)
    code = STOPPED if peer.poll() is None else peer.returncode
    with suppress(ProcessLookupError):
        os.killpg(peer.pid, signal.SIGKILL)
    peer.wait()
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
