"""The npm that the tests run: the machine's own, which does not compile itself anew for each command.

A command of npm takes 0.3 CPU s, most of it to find, compile and load its modules, and the suite runs a
thousand of them. ``compiled.cjs`` keeps what that comes to for a run of the tests, as Node itself can from
version 22 on. Not in the sandbox: there npm is found where the machine has it.
"""

import json
import os
import shutil
from pathlib import Path

_PRELOADED = Path(__file__).with_name("compiled.cjs")

#: What npm is, where a machine has the usual one: a program of another kind (volta's) is left alone.
_SCRIPT = Path("bin", "npm-cli.js")

#: No shell's: that would drop variables with names such as ``npm_config_@acme:registry``.
_PROGRAM = """\
#!{node}
process.argv[1] = {npm}
require({preloaded})({kept})
require('node:module').runMain()
"""


def warm_npm(folder: Path, path: str) -> str:
    """``path`` behind a folder, below ``folder``, with that npm. Without the usual npm: as it is."""
    npm, node = shutil.which("npm", path=path), shutil.which("node", path=path)
    if npm is None or node is None or not _is_usual(Path(npm).resolve()):
        return path
    programs, kept = folder / "bin", folder / "kept"
    programs.mkdir(parents=True)
    kept.mkdir()
    words = {"npm": npm, "preloaded": _PRELOADED, "kept": kept}
    program = programs / "npm"
    program.write_text(
        _PROGRAM.format(node=node, **{k: json.dumps(str(v)) for k, v in words.items()})
    )
    program.chmod(0o755)
    return f"{programs}{os.pathsep}{path}"


def real_npm() -> str | None:
    """The machine's own npm, for who looks at its files."""
    rest = [folder for folder in os.environ["PATH"].split(os.pathsep) if not _is_ours(Path(folder))]
    return shutil.which("npm", path=os.pathsep.join(rest))


def _is_usual(npm: Path) -> bool:
    return npm.parts[-2:] == _SCRIPT.parts


def _is_ours(folder: Path) -> bool:
    program = folder / "npm"
    return program.is_file() and str(_PRELOADED).encode() in program.read_bytes()[:4096]
