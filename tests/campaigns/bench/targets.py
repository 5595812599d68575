"""Small repositories with one known vulnerability each, and our side of fixing them."""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.campaigns.bench.measure import BenchError, Command, Sample, clean_environment, total

_SERVER = Path(__file__).with_name("osv_server.py")


@dataclass(frozen=True)
class Kind:
    """What the repository is made of: its files, then commands that make its lock.

    ``proof`` has ``fixed`` in it exactly when the fix was made. ``second`` files replace the first
    once the lock holds the old version, so that the lock alone has to move.
    """

    files: Mapping[str, str]
    proof: str
    fixed: str
    advisory: Mapping[str, Any]
    lock: tuple[str, ...] = ()
    second: Mapping[str, str] | None = None


def osv(ecosystem: str, package: str, fixed: str, *versions: str) -> dict[str, Any]:
    """A record about one package."""
    kind = "SEMVER" if ecosystem == "npm" else "ECOSYSTEM"
    return {
        "schema_version": "1.7.0",
        "id": "BENCH-2026-0001",
        "published": "2026-01-01T00:00:00Z",
        "modified": "2026-01-01T00:00:00Z",
        "summary": "A record for benchmarks.",
        "affected": [
            {
                "package": {"ecosystem": ecosystem, "name": package},
                "ranges": [{"type": kind, "events": [{"introduced": "0"}, {"fixed": fixed}]}],
                "versions": list(versions),
            }
        ],
    }


_JINJA2 = osv("PyPI", "jinja2", "3.1.4", "3.1.2", "3.1.3")

REQUIREMENTS = Kind(
    files={
        "requirements.txt": "# web\nflask==2.3.3\nrequests==2.31.0  # http\njinja2==3.1.2\nidna==3.6\n"
    },
    proof="requirements.txt",
    fixed="jinja2==3.1.4",
    advisory=_JINJA2,
)

_PYPROJECT = """\
[project]
name = "target"
version = "1.0.0"
requires-python = ">=3.11"
dependencies = ["flask==3.0.0", "requests==2.31.0", "jinja2{}"]
"""
UV = Kind(
    files={"pyproject.toml": _PYPROJECT.format("==3.1.2")},
    second={"pyproject.toml": _PYPROJECT.format(">=3.0")},
    lock=("uv", "lock", "--quiet", "--no-python-downloads"),
    proof="uv.lock",
    fixed='name = "jinja2"\nversion = "3.1.4"',
    advisory=_JINJA2,
)

_PACKAGE_JSON = {
    "name": "target",
    "version": "1.0.0",
    "private": True,
    "dependencies": {"axios": "1.6.0", "express": "4.18.2", "lodash": "4.17.20"},
}
NPM = Kind(
    files={"package.json": json.dumps(_PACKAGE_JSON, indent=2) + "\n"},
    lock=("npm", "install", "--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund"),
    proof="package-lock.json",
    fixed='"node_modules/lodash": {\n      "version": "4.17.21"',
    advisory=osv("npm", "lodash", "4.17.21"),
)


@dataclass(frozen=True)
class Target:
    """A committed repository of a kind, and an advisory about one package of it."""

    kind: Kind
    root: Path
    advisory: Path
    state: Path

    @classmethod
    def create(cls, place: Path, kind: Kind, *, uv: Path | None = None) -> "Target":
        """Make it in ``place``. Raises BenchError where the lock can't be made (no client, no index)."""
        target = cls(kind, place / "target", place / "advisory.json", place / "state")
        target.root.mkdir()
        target.advisory.write_text(json.dumps(kind.advisory))
        for files in (kind.files, kind.second or {}):
            for name, text in files.items():
                (target.root / name).parent.mkdir(exist_ok=True)
                (target.root / name).write_text(text)
            if kind.lock and files:
                tool = uv if uv is not None else kind.lock[0]
                Command([tool, *kind.lock[1:]], target.root).run()
        git = ["git", "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
        Command([*git, "init", "--quiet"], target.root).run()
        Command([*git, "add", "."], target.root).run()
        Command([*git, "commit", "--quiet", "--message", "vulnerable"], target.root).run()
        return target

    @property
    def reset(self) -> Command:
        """Back to the commit."""
        return Command(["git", "checkout", "--quiet", "--force", "HEAD", "--", "."], self.root)


class Attempt:
    """Our side: one ``attempt``, then its patch put on the tree."""

    label = "fallback-tier attempt + git apply"

    def __init__(self, program: Path, target: Target, *options: str) -> None:
        self._target = target
        self._answer = target.state.with_suffix(".answer.json")
        self._diff = target.state.with_suffix(".diff")
        request = target.state.with_suffix(".request.json")
        record = json.loads(target.advisory.read_text())
        request.write_text(json.dumps({"advisory": record, "repository": str(target.root)}))
        self._attempt = Command(
            [program, "attempt", "--state-dir", target.state, *options],
            target.root,
            stdin=request,
            stdout=self._answer,
        )
        self._apply = Command(["git", "apply", self._diff], target.root)

    def measure(self) -> Sample:
        """Both commands; taking the diff out of the answer is an orchestrator's work, untimed."""
        self._target.reset.run()
        attempt = self._attempt.run()
        answer = json.loads(self._answer.read_text())
        if answer["outcome"] != "applied":
            raise BenchError(f"the attempt was refused: {answer['sentence']}")
        self._diff.write_text(answer["diff"])
        return total([attempt, self._apply.run()])

    def write_diff(self, path: Path) -> None:
        """The patch itself, for a peer that is given it."""
        self.measure()
        shutil.copyfile(self._diff, path)


@contextmanager
def osv_server(advisory: Path) -> Iterator[str]:
    """The query address of a loopback OSV server that knows this record."""
    with loopback(_SERVER, advisory) as port:
        yield f"http://127.0.0.1:{port}/v1/query"


@contextmanager
def loopback(script: Path, knowledge: Path) -> Iterator[str]:
    """The port of a server of this folder, run as a process of its own."""
    process = subprocess.Popen(
        [shutil.which("python3") or "python3", script, knowledge],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=clean_environment(),
        text=True,
    )
    with process:
        try:
            port = process.stdout.readline().strip() if process.stdout else ""
            if not port:
                raise BenchError(f"{script.name} did not start")
            yield port
        finally:
            process.kill()
