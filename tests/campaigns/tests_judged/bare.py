"""A project's own test command, run bare: in a plain checkout, with its client's install, without the
tool.
"""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tests.campaigns.eval_repos.cases import Project
from tests.campaigns.eval_repos.clients import Clients
from tests.campaigns.eval_repos.looking import install
from tests.campaigns.measuring.clones import copy
from tests.campaigns.measuring.process import run_to_end
from tests.campaigns.tests_judged.breaking import Break
from tests.campaigns.tests_judged.cases import Case

#: One bare run.
TIMEOUT_S = 600

#: Interpreters with which a Python project is installed, until one serves.
PYTHONS = ("3.11", "3.12", "3.9", "3.7")

#: By the name of a lock's format: the client of its day.
_NPM_BY = {1: "npm@6.14.18", 2: "npm@8.19.4", 3: "npm@10.9.2"}
_PNPM_BY = {"5": "pnpm@7.33.7", "6": "pnpm@8.15.9", "9": "pnpm@9.15.9"}
_POETRY = re.compile(r"Poetry (\d)")


def projects(client: str, lock: str, text: str) -> tuple[Project, ...]:
    """Return the project of a lock (or of a requirements file), as eval_repos installs it: one for each
    interpreter that may serve."""
    is_python = client in {"pip", "Poetry", "uv"}
    return tuple(
        Project(
            place="." if client == "pip" else str(PurePosixPath(lock).parent),
            by=_by(client, text),
            requirements=(lock,) if client == "pip" else (),
            python=python,
        )
        for python in (PYTHONS if is_python else PYTHONS[:1])
    )


def _by(client: str, text: str) -> str:
    """Return the client of the lock's day, as eval_repos names it."""
    match client:
        case "npm":
            return _NPM_BY[json.loads(text).get("lockfileVersion", 1)]
        case "pnpm":
            version = re.search(r"lockfileVersion:\s*['\"]?(\d+)", text)
            return _PNPM_BY[version[1] if version else "5"]
        case "yarn":
            return "yarn@1.22.22"
        case "Poetry":
            found = _POETRY.search(text[:200])
            return "poetry@2.1.4" if found and found[1] == "2" else "poetry@1.8.5"
        case _:
            return client


@dataclass(frozen=True)
class Bare:
    """Runs of one case's command. ``command``: for a shell; empty: what the ecosystem's people type."""

    clients: Clients
    case: Case
    command: str = ""

    def codes(
        self, root: Path, folder: Path, breaks: Sequence[Break]
    ) -> tuple[tuple[int | None, ...], str]:
        """Return the exit code with each break, and why there are none. None: it did not end in time.

        Without breaks it must pass: an exit code says nothing of one failure more.
        """
        work = copy(root, folder / "bare")
        lock = self.case.locks[0]
        text = (work / lock).read_text(encoding="utf-8", errors="replace")
        for project in projects(self.case.client, lock, text):
            done = install(work / project.place, project, self.clients)
            if done.ok:
                break
        else:
            return (), f"can't be installed: {done.said[-160:]}"
        if self.case.client == "pip":
            words = [
                "uv",
                "pip",
                "install",
                "--quiet",
                "--python",
                ".venv/bin/python",
                "-e",
                ".",
                "pytest",
            ]
            self.clients.run([*self.clients.had("uv"), *words[1:]], work)
        if (code := self._run(work)) != 0:
            return (), f"the bare run exits with {code} without a break"
        codes = []
        for one in breaks:
            place = work / one.path
            before = place.read_bytes()
            place.write_text(one.text, encoding="utf-8")
            codes.append(self._run(work))
            place.write_bytes(before)
        return tuple(codes), ""

    def _run(self, work: Path) -> int | None:
        folders = [work / ".venv" / "bin", work / "node_modules" / ".bin"]
        path = os.pathsep.join([*map(str, folders), self.clients.environ["PATH"]])
        env = {**self.clients.environ, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        return run_to_end(
            ["sh", "-c", self.command or self._usual(work)], cwd=work, env=env, timeout_s=TIMEOUT_S
        ).code

    def _usual(self, work: Path) -> str:
        if self.case.ecosystem == "npm":
            return "npm test"
        is_django = (work / "manage.py").exists() and not (work / "pytest.ini").exists()
        return "python manage.py test" if is_django else "python -m pytest -q"
