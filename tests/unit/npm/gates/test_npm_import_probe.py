"""npm's probe as it is run inside a sandbox: a real node, one process a package."""

import json
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from tests import hanging

SOURCE = files("fallback_plugins.npm.gates").joinpath("import_probe.js").read_text("utf-8")

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not on PATH")


def probe(
    place: Path, limit_s: str, /, *, all_s: str = "600", way: str = "require", **packages: str
) -> tuple[int, list[str]]:
    for name, text in packages.items():
        folder = place / "node_modules" / name
        folder.mkdir(parents=True)
        (folder / "package.json").write_text(json.dumps({"name": name, "main": "main.js"}))
        (folder / "main.js").write_text(text)
    asked = json.dumps([(f"{name} (here)", name, ".", way) for name in packages])
    command = ["node", "-e", SOURCE, limit_s, all_s, asked]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120)
    messages = [line for line in done.stdout.splitlines() if line.startswith(("cannot", "no time"))]
    return done.returncode, messages


@pytest.mark.parametrize("way", ["require", "import"])
def test_each_package_is_judged_by_itself(tmp_path: Path, way: str) -> None:
    reported = probe(
        tmp_path,
        "60",
        way=way,
        good="setInterval(() => {}, 1000);\n",
        ends="process.exit(3);\n",
        crashes="process.kill(process.pid, 'SIGSEGV');\n",
        lines="throw new TypeError('needs:\\n  left\\n  right');\n",
        coded="throw Object.assign(new Error('no'), { code: 'E_LEFT' });\n",
        silent="throw null;\n",
        unspeakable="throw { get message() { throw 1; } };\n",
        also="module.exports = 1;\n",
    )
    assert reported == (
        1,
        [
            "cannot import ends (here): it ends the process, with exit code 3",
            "cannot import crashes (here): it ends the process, by SIGSEGV",
            "cannot import lines (here): TypeError: needs: left right",
            "cannot import coded (here): E_LEFT: no",
            "cannot import silent (here): it throws what is no error",
            "cannot import unspeakable (here): it throws what is no error",
        ],
    )


def test_what_is_not_there_is_named_without_who_asked(tmp_path: Path) -> None:
    code, (message,) = probe(tmp_path, "60", needs="require('nowhere');\n")
    assert (code, message) == (
        1,
        "cannot import needs (here): MODULE_NOT_FOUND: Cannot find module 'nowhere'",
    )


def test_a_package_that_hangs_is_ended_and_the_next_one_is_still_asked(tmp_path: Path) -> None:
    reported = probe(tmp_path, "3", hangs=hanging.IN_NODE, ends="process.exit(0);\n")
    assert reported == (
        1,
        [
            "cannot import hangs (here): it did not end within 3 s",
            "cannot import ends (here): it ends the process, with exit code 0",
        ],
    )


def test_what_there_is_no_time_for_is_named_and_is_no_failure(tmp_path: Path) -> None:
    reported = probe(tmp_path, "30", all_s="3", good="", hangs=hanging.IN_NODE, ends="throw 1;\n")
    assert reported == (0, ["no time left for hangs (here), ends (here)"])
