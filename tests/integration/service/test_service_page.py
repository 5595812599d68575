"""docs/service.md: its clients run as they stand there, and its table has every route."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.command import osv, repository
from tests.integration.service.test_roles import NEEDS, OPEN
from tests.service.running import served

PAGE = Path(__file__).parents[3] / "docs" / "service.md"

#: How a client is run, and what it needs.
CLIENTS = {"sh": (["sh", "-eu"], ("curl", "jq")), "node": (["node", "--input-type=module"], ())}


def client(name: str) -> str:
    (found,) = re.findall(
        rf"<!-- client: {name} -->\n```\w+\n(.+?)```", PAGE.read_text(), re.DOTALL
    )
    return str(found)


@pytest.mark.registry("uv")
@pytest.mark.sandbox
@pytest.mark.parametrize("name", CLIENTS)
def test_the_client_takes_a_patch(name: str, tmp_path: Path) -> None:
    command, needed = CLIENTS[name]
    for program in (command[0], *needed):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    app = repository(tmp_path / "app", {"requirements.txt": "idna==3.6\n"})
    (tmp_path / "advisory.json").write_text(osv("idna", fixed="3.7"))
    config = f'[repositories.app]\npath = "{app}"\n'
    with served(tmp_path / "state", config, as_command=name == "sh") as service:
        done = subprocess.run(
            command,
            input=client(name),
            cwd=tmp_path,
            env={**os.environ, "URL": service.address, "KEY": service.key},
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, (done.stdout, done.stderr, service.said)
    assert "FixStarted" in done.stdout
    assert "FixVerified" in done.stdout
    assert "+idna==3.7" in (tmp_path / "fix.patch").read_text()


def test_the_table_has_every_route() -> None:
    named = re.findall(r"`(GET|POST|DELETE) (/v1/[^`]+)`(?:,| \|)", PAGE.read_text())
    assert {(method, path.replace("{fix}", "{fix_id}")) for method, path in named} == {
        *NEEDS,
        *OPEN,
    }
