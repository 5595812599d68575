"""When a server of one's own counts as started."""

import sys
from pathlib import Path

import pytest

from fallback_tier.engines.temporal import dev
from tests.kinds import OfKind
from tests.ports import free_port

#: Opens its port at once, as the real one does; answers only where the file ``serves`` is in its home, and
#: counts how often it is asked.
_SERVER = """#!{python} -S
import os, socket, sys, time
home = os.environ["HOME"]
if sys.argv[1] == "server":
    listening = socket.create_server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])))
    time.sleep(60)
asked = os.path.join(home, "asked")
with open(asked, "a") as told:
    told.write(" ".join(sys.argv[1:]) + "\\n")
if len(open(asked).readlines()) == {serves_at}:
    sys.exit(0)
sys.exit("unavailable")
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    binary = tmp_path / "temporal"
    monkeypatch.setattr(dev, "server_binary", lambda: binary)
    return binary


def _written(binary: Path, serves_at: int) -> None:
    binary.write_text(_SERVER.format(python=sys.executable, serves_at=serves_at))
    binary.chmod(0o700)


def test_a_server_is_ready_when_it_answers_not_when_its_port_is_open(
    stand_in: Path, tmp_path: Path
) -> None:
    _written(stand_in, serves_at=3)
    with dev.dev_server(tmp_path / "data", free_port()) as server:
        asked = (tmp_path / "data" / "asked").read_text().splitlines()
    assert len(asked) == 3
    assert asked[0] == f"operator namespace describe --namespace default --address {server.address}"


def test_one_that_never_answers_is_not_ready(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _written(stand_in, serves_at=0)
    monkeypatch.setattr(dev, "READY_S", 0.5)
    with pytest.raises(dev.DevServerError, check=OfKind("not_ready")):
        dev.start_server(tmp_path / "data", free_port())
