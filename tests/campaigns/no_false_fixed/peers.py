"""Other tools on the same cases, judged as ours is: updaters by package name, and fixers by advisory.

A fixer (``npm audit fix``, ``pnpm audit --fix``, ``pip-audit --fix``) is served the case's advisory on
loopback, and claims what its exit code says. An updater makes no claim: if it exits with 0 and changed a
file, a reader takes that for a fix; if it changed none, it counts as a refusal, never as a false claim.
"""

import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.campaigns.eval_repos.clients import Clients
from tests.campaigns.eval_repos.loopback import serve_advisories
from tests.campaigns.measuring.clones import copy, git
from tests.campaigns.no_false_fixed.case import Case, End, Ended, run_command

#: Each client that a case, the judge or a peer needs, at the version that is fetched from its registry.
FETCHED = (
    "yarn@1.22.22",
    "pnpm@10.15.0",
    "poetry@2.1.4",
    "pipenv@2025.0.4",
    "pip-tools@7.5.1",
    "pip-audit@2.10.0",
)

#: Clients that our tool pins and fetches itself, if a lock asks for them.
_OF_OUR_TOOL = ("yarn@1.22.22", "pnpm@9.15.9")

_ADVISORY_URL = "$ADVISORY_URL"


def programs(folder: Path, fetched: tuple[str, ...] = FETCHED) -> tuple[Path, dict[str, str]]:
    """Fetch the clients. Return a folder of their programs, and the reason for each that can't run here."""
    clients, bin_folder, missing = Clients(folder), folder / "bin", {}
    bin_folder.mkdir(parents=True, exist_ok=True)
    for by in ("uv", *fetched):
        name = by.partition("@")[0]
        try:
            command = clients.had(by)
        except (RuntimeError, OSError) as error:
            missing[name] = " ".join(str(error).split())[:200]
            continue
        before = _own_wheels(clients, folder) if name == "pip-audit" else ""
        program = bin_folder / {"pip-tools": "pip-compile"}.get(name, name)
        program.write_text(f'#!/bin/sh\n{before}exec {shlex.join(map(str, command))} "$@"\n')
        program.chmod(0o755)
    for by in _OF_OUR_TOOL if fetched else ():
        with suppress(RuntimeError, OSError):
            clients.had(by)
    return bin_folder, missing


def lend_clients(folder: Path, cache: Path) -> None:
    """Put the clients that our tool pins into its cache: no case's registry has them."""
    store = cache / "fallback-tier" / "clients"
    store.mkdir(parents=True)
    for by in _OF_OUR_TOOL:
        if (folder / by).exists():
            (store / by.replace("@", "-")).symlink_to(folder / by)


def _own_wheels(clients: Clients, folder: Path) -> str:
    """Fetch what ``pip-audit`` installs for itself, which no case has. Return the setting for it."""
    wheels = folder / "wheels"
    if not wheels.exists():
        python = Path(clients.had("pip-audit@2.10.0")[0]).with_name("python")
        names = ("pip", "setuptools", "wheel")
        clients.must([python, "-m", "pip", "download", "-d", wheels, *names], folder)
    return f"export PIP_FIND_LINKS={shlex.quote(str(wheels))}\n"


@dataclass(frozen=True)
class Peer:
    """Another tool. ``commands``: what a user would run, each with its folder. ``knows``: it is given the
    advisory, and its exit code is a claim."""

    name: str
    client: str
    commands: Callable[[Case, Path], Iterator[tuple[str, str]]]
    knows: bool = False


def run_peer(
    peer: Peer, case: Case, base: Path, after: Path, npm: str, environ: Mapping[str, str]
) -> Ended | None:
    """Run a peer in ``after``, a new copy of the base. Return None if it is not for such a project."""
    copy(base, after)
    commands = [*peer.commands(case, after)]
    if not commands:
        return None
    began, outputs, code = time.monotonic(), [], 0
    with serve_advisories([case.record], npm) as url:
        for folder, command in commands:
            run = run_command(command.replace(_ADVISORY_URL, url), after / folder, environ)
            outputs.append(f"$ {command}\n{run.stdout}\n{run.stderr}")
            code = code or run.returncode
    # What `yarn upgrade` installs is no part of its fix.
    git(after, "clean", "-q", "-d", "-f", "-x", "--", ":(glob)**/node_modules/**")
    changed = bool(git(after, "status", "--porcelain", "--untracked-files=no").strip())
    seconds = time.monotonic() - began
    return Ended(_end(peer, code, changed=changed), code, "\n".join(outputs), seconds)


def _end(peer: Peer, code: int, *, changed: bool) -> End:
    if code:
        return "refused" if peer.knows else "error"
    if changed:
        return "fixed"
    return "not_affected" if peer.knows else "refused"


def _affected(case: Case) -> list[str]:
    named = (entry["package"] for entry in case.record["affected"])
    return sorted({it["name"] for it in named if it["ecosystem"] == case.ecosystem})


def _in_folders_with(
    *files: str, command: str
) -> Callable[[Case, Path], Iterator[tuple[str, str]]]:
    """Run a command in each folder that has one of these files; ``NAMES``: the affected packages."""

    def commands(case: Case, root: Path) -> Iterator[tuple[str, str]]:
        names = " ".join(_affected(case))
        for folder in sorted({path.parent for name in files for path in root.rglob(name)}):
            if "node_modules" not in folder.parts:
                yield folder.relative_to(root).as_posix(), command.replace("NAMES", names)

    return commands


def _npm(command: str, case: Case, root: Path) -> Iterator[tuple[str, str]]:
    """In each folder with npm's lock, or with a manifest if there is no lock at all."""
    if case.client == "npm":
        files = ("package-lock.json", "npm-shrinkwrap.json")
        locked = [*_in_folders_with(*files, command=f"{command} --package-lock-only")(case, root)]
        yield from locked or _in_folders_with("package.json", command=command)(case, root)


def _uv_lock(case: Case, root: Path) -> Iterator[tuple[str, str]]:
    options = " ".join(f"--upgrade-package {name}" for name in _affected(case))
    yield from _in_folders_with("uv.lock", command=f"uv lock {options}")(case, root)


def _compile(case: Case, root: Path) -> Iterator[tuple[str, str]]:
    """Each compiled file from the sources that its header names, as a user would repeat it."""
    options = " ".join(f"--upgrade-package {name}" for name in _affected(case))
    for path in sorted(root.rglob("*.txt")):
        text = path.read_text(encoding="utf-8", errors="replace")
        header = re.search(r"^#\s+(?:uv pip compile|pip-compile)\s+(.+)$", text, re.MULTILINE)
        if header:
            words = [
                word for word in shlex.split(header[1]) if word.endswith((".in", ".toml", ".cfg"))
            ]
            hashes = " --generate-hashes" if "--hash=" in text else ""
            sources = shlex.join(words)
            command = f"uv pip compile --quiet{hashes} {sources} -o {path.name} {options}"
            yield path.parent.relative_to(root).as_posix(), command


def _pip_audit(case: Case, root: Path) -> Iterator[tuple[str, str]]:
    """Each file that an install command gives to pip."""
    seen = set()
    for install in case.installs:
        for name in re.findall(r"(?:-r|--requirement)[ =]?(\S+)", install.command):
            if (install.folder, name) not in seen and (root / install.folder / name).is_file():
                seen.add((install.folder, name))
                options = f"--fix --progress-spinner off -s osv --osv-url {_ADVISORY_URL}/v1/query"
                yield install.folder, f"pip-audit -r {shlex.quote(name)} {options}"


_PNPM_AUDIT = (
    f"pnpm audit --fix --registry={_ADVISORY_URL}/ && "
    "pnpm install --lockfile-only --no-frozen-lockfile"
)

PEERS = (
    Peer("npm update", "npm", partial(_npm, "npm update --no-audit")),
    Peer(
        "npm audit fix",
        "npm",
        partial(
            _npm, f"npm audit fix --audit --registry={_ADVISORY_URL}/ --replace-registry-host=never"
        ),
        knows=True,
    ),
    Peer("yarn upgrade", "yarn", _in_folders_with("yarn.lock", command="yarn upgrade NAMES")),
    Peer(
        "pnpm update",
        "pnpm",
        _in_folders_with("pnpm-lock.yaml", command="pnpm update -r NAMES --lockfile-only"),
    ),
    Peer(
        "pnpm audit --fix",
        "pnpm",
        _in_folders_with("pnpm-lock.yaml", command=_PNPM_AUDIT),
        knows=True,
    ),
    Peer("uv lock --upgrade-package", "uv", _uv_lock),
    Peer("uv pip compile --upgrade-package", "uv", _compile),
    Peer("pip-audit --fix", "pip-audit", _pip_audit, knows=True),
    Peer(
        "poetry update",
        "poetry",
        _in_folders_with("poetry.lock", command="poetry update --lock NAMES"),
    ),
    Peer(
        "pipenv upgrade", "pipenv", _in_folders_with("Pipfile.lock", command="pipenv upgrade NAMES")
    ),
)
