"""The demo's repositories: two real projects from the package registries, two written for the demo.

A download from a registry is checked against the digest written here before it is used.
"""

import base64
import hashlib
import os
import shutil
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

from fallback_tier.errors import ToolFailedError
from fallback_tier.execution import ClientRunner, CommandResult
from fallback_tier.gates.builtin.proof_given import Proof

#: Timeout in seconds of a registry download or a lock refresh; slow links exist.
CLIENT_TIMEOUT_S = 300.0

RC = "rc@1.2.8"
RC_SHA512 = (
    "y3bGgqKj3QBdxLbLkomlohkvsA8gdAiUQlSBJnBhfn+BPxg4bc62d8TcBW15wavDfgexCgccckhcZvywyQYPOw=="
)
RC_VULNERABLE = "ini@1.3.5"

FLASK = "flask==3.1.2"
FLASK_SHA256 = "bf656c15c80190ed628ad08cdfd3aaa35beb087855e2f494910aa3774cc4fd87"

_AUTHOR = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in {
        "NAME": "fallback-tier demo",
        "EMAIL": "demo@fallback-tier.invalid",
        # Fixed dates: the same commit, and so the same recorded traffic, on every machine.
        "DATE": "2026-01-01T00:00:00Z",
    }.items()
}


def flaw_test(name: str) -> Proof:
    """Return a test of the vulnerability, which is laid over the project for its own run only."""
    with shipped(f"proofs/{name}") as path:
        return Proof(("python", "-m", "unittest", "flaw_test"), {"flaw_test.py": path.read_bytes()})


def fetch_rc(project_dir: Path, clients: ClientRunner) -> None:
    """Fetch npm's ``rc`` with a lock that holds the vulnerable ``ini``, as it did for years."""
    download = _download_folder(project_dir)
    _ok(_run(clients, "npm", ["pack", "--silent", RC], download))
    _unpack(_checked(next(download.glob("*.tgz")), "sha512", RC_SHA512), project_dir)
    manifest = (project_dir / "package.json").read_bytes()
    lock_only = ["install", "--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund"]
    _ok(_run(clients, "npm", [*lock_only, RC_VULNERABLE], project_dir))
    (project_dir / "package.json").write_bytes(manifest)
    _ok(_run(clients, "npm", lock_only, project_dir))
    commit(project_dir, clients)


def fetch_flask(project_dir: Path, clients: ClientRunner) -> None:
    """Fetch Flask 3.1.2 as released: its own lock holds the vulnerable Werkzeug 3.1.3."""
    download = _download_folder(project_dir)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    settings = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    _ok(_run(clients, pip[0], [*pip[1:], FLASK], download, settings))
    _unpack(_checked(next(download.glob("*.tar.gz")), "sha256", FLASK_SHA256), project_dir)
    # Same versions, in the format of this machine's uv and registry: the fix's diff then shows the fix, and
    # not a newer lock format.
    _ok(_run(clients, "uv", ["lock", "--quiet"], project_dir))
    commit(project_dir, clients)


@contextmanager
def shipped(name: str) -> Iterator[Path]:
    """Yield a file or folder of the demo as a path on disk."""
    with as_file(files("fallback_tier.demo") / name) as path:
        yield path


def copy_project(name: str, project_dir: Path, clients: ClientRunner) -> None:
    """Copy one of the projects written for the demo, as a repository."""
    with shipped(f"projects/{name}") as source:
        shutil.copytree(source, project_dir, ignore=shutil.ignore_patterns("__pycache__"))
    commit(project_dir, clients)


def commit(project_dir: Path, clients: ClientRunner) -> None:
    """Make a repository with everything in one commit."""
    for args in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "as found"]):
        _ok(_run(clients, "git", args, project_dir, _AUTHOR))


def _run(
    clients: ClientRunner,
    tool: str,
    args: list[str],
    cwd: Path,
    env: dict[str, str] | None = None,
) -> CommandResult:
    return clients.run(tool, args, cwd=cwd, timeout_s=CLIENT_TIMEOUT_S, env=env)


def _ok(result: CommandResult) -> None:
    if not result.ok:
        raise ToolFailedError(
            f"{' '.join(result.argv)} failed: {result.output.strip()[-400:]}",
            next_step="The demo needs the npm and Python registries; check the network and try again.",
            output=result.output,
        )


def _download_folder(project_dir: Path) -> Path:
    folder = project_dir.with_name(f"{project_dir.name}-download")
    folder.mkdir(parents=True)
    return folder


def _checked(archive: Path, algorithm: str, expected: str) -> Path:
    digest = hashlib.new(algorithm, archive.read_bytes())
    spellings = {digest.hexdigest(), base64.b64encode(digest.digest()).decode()}
    if expected not in spellings:
        raise ToolFailedError(
            f"{archive.name} is not the release that this demo was written for.",
            next_step="Check what your registry serves; nothing of it was used.",
        )
    return archive


def _unpack(archive: Path, project_dir: Path) -> None:
    """Unpack an archive without its own top folder."""
    scratch = archive.parent / "unpacked"
    with tarfile.open(archive) as tar:
        # Python before 3.11.4 has no filters; the digest ensures the content, with or without a filter.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(scratch)  # noqa: S202 (checked by its digest)
    next(scratch.iterdir()).rename(project_dir)
