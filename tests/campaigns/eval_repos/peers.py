"""What others do to the same repository: each in a copy of the base, held to the same judge.

npm's own commands run as the npm that is installed, told to keep the version that the lock has: an older
npm of the case's has no bulk audit. They write locks only, as the tool does.
"""

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.campaigns.eval_repos.cases import Case, Project
from tests.campaigns.eval_repos.clients import Clients
from tests.campaigns.eval_repos.judge import affected, works_as_before
from tests.campaigns.eval_repos.looking import Looked, look
from tests.campaigns.eval_repos.loopback import serve_advisories
from tests.campaigns.eval_repos.making import changed_lines
from tests.campaigns.measuring.clones import copy
from tests.campaigns.measuring.frozen import Frozen
from tests.campaigns.measuring.words import cleaned
from tests.campaigns.recipes_bench.versions import canonical, order

PIP_AUDIT = "pip-audit@2.10.0"

_QUIET = ("--ignore-scripts", "--no-audit", "--no-fund")

Records = Sequence[Mapping[str, Any]]


class PeerEnd(Frozen):
    """``cleared``: no copy that an advisory covers is left; ``works``: installs and works as before.

    ``lines``: changed, as git counts them; ``moved``: how many packages have other versions.
    """

    peer: str
    cleared: bool
    works: bool
    lines: int
    moved: int
    said: str = ""
    seconds: float = 0.0

    @property
    def serves(self) -> bool:
        return self.cleared and self.works


@dataclass(frozen=True)
class Work:
    """What a peer gets. ``base``: what is installed before; ``npm``: the real registry."""

    case: Case
    project: Project
    records: Records
    root: Path
    base: Looked
    clients: Clients
    npm: str

    @property
    def place(self) -> Path:
        return self.root / self.project.place

    @property
    def fixed(self) -> dict[str, str]:
        """Affected package → the lowest version that is fixed above the lowest copy."""
        held = dict(sorted(self.base.held, reverse=True))
        found: dict[str, str] = {}
        for record in self.records:
            for entry in record["affected"]:
                name = entry["package"]["name"]
                have = held.get(canonical(self.case.ecosystem, name))
                if have and (fixed := _lowest(self.case.ecosystem, entry, have)):
                    found[name] = max(fixed, found.get(name, fixed), key=self._order)
        return found

    def _order(self, version: str) -> Any:
        return order(self.case.ecosystem, version)


def _lowest(ecosystem: str, entry: Mapping[str, Any], have: str) -> str | None:
    bounds = [
        event["fixed"]
        for one in entry.get("ranges", ())
        for event in one["events"]
        if "fixed" in event
    ]
    above = [it for it in bounds if order(ecosystem, it) > order(ecosystem, have)]
    return min(above, key=lambda it: order(ecosystem, it), default=None)


def _npm(work: Work, *words: str | Path) -> str:
    lock = work.place / "package-lock.json"
    options: list[str | Path] = ["--ignore-scripts", "--no-fund"]
    if lock.exists():
        version = json.loads(lock.read_text(encoding="utf-8")).get("lockfileVersion", 1)
        options += ["--package-lock-only", "--lockfile-version", str(version)]
    else:
        options += ["--no-package-lock"]
    done = work.clients.run(["npm", *words, *options], work.place)
    return "" if done.ok else done.said


def _npm_update(work: Work) -> str:
    return _npm(work, "update", "--no-audit")


def _npm_audit_fix(work: Work) -> str:
    with serve_advisories(work.records, work.npm) as url:
        # Options, since of a variable npm reads two spellings.
        reported = (f"--registry={url}/", "--replace-registry-host=never", "--audit")
        return _npm(work, "audit", "fix", *reported)


def _npm_install(work: Work) -> str:
    packages = [f"{name}@{version}" for name, version in work.fixed.items()]
    return _npm(work, "install", "--no-audit", *packages) if packages else "nothing to install"


def _pip_audit(work: Work) -> str:
    messages = []
    with serve_advisories(work.records, work.npm) as url:
        for name in work.project.requirements:
            command = [*work.clients.had(PIP_AUDIT), "--requirement", name, "--fix"]
            command += ["--progress-spinner", "off", "-s", "osv", "--osv-url", f"{url}/v1/query"]
            text = (work.place / name).read_text(encoding="utf-8")
            command += ["--disable-pip", "--require-hashes"] if "--hash=" in text else []
            done = work.clients.run(command, work.place)
            # 1: something was found, and may be fixed.
            messages += [] if done.code in {0, 1} else [done.said]
    return " ".join(messages)


def _uv_upgrade(work: Work) -> str:
    words = [word for name in work.fixed for word in ("--upgrade-package", name)]
    command = [*work.clients.had("uv"), "lock", "--python", work.project.python, *words]
    done = work.clients.run(command, work.place)
    return "" if done.ok else done.said


def _has_npm_lock(project: Project) -> bool:
    return project.client == "npm" and project.locks


def _pip_reads(project: Project) -> bool:
    return any(re.search(r"\.txt$", name) for name in project.requirements)


#: Name → (which projects it is for, what it does).
PEERS: dict[str, tuple[Callable[[Project], bool], Callable[[Work], str]]] = {
    "npm update": (_has_npm_lock, _npm_update),
    "npm audit fix": (_has_npm_lock, _npm_audit_fix),
    "npm install pkg@fixed": (lambda one: one.client == "npm", _npm_install),
    "pip-audit --fix": (_pip_reads, _pip_audit),
    "uv lock --upgrade-package": (lambda one: one.client == "uv", _uv_upgrade),
}


def run_peers(
    case: Case, records: Records, root: Path, base: Looked, clients: Clients, npm: str
) -> tuple[PeerEnd, ...]:
    """Every peer that there is for the case's projects. Raises RuntimeError where one can't be had."""
    found: list[PeerEnd] = []
    for name, (is_for, act) in PEERS.items():
        projects = [one for one in case.project if is_for(one)]
        if not projects:
            continue
        began = time.monotonic()
        place = copy(root, root.with_name(f"peer-{len(found)}"))
        messages = [act(Work(case, one, records, place, base, clients, npm)) for one in projects]
        found.append(_ended(name, case, records, place, base, clients, " ".join(messages), began))
    return tuple(found)


def _ended(
    name: str,
    case: Case,
    records: Records,
    place: Path,
    base: Looked,
    clients: Clients,
    message: str,
    began: float,
) -> PeerEnd:
    _, lines = changed_lines(place)
    after = look(place, case, clients)
    left = affected(records, case.ecosystem, after.held)
    wrong = list(works_as_before(base, after))
    words = message or next((one.detail for one in wrong), "")
    places = [(str(place), "REPO"), (str(clients.folder), "CLIENTS"), (str(Path.home()), "~")]
    return PeerEnd(
        peer=name,
        cleared=after.installs == base.installs and not left,
        works=not wrong,
        lines=lines,
        moved=len({package for package, _ in base.held ^ after.held}) if after.installs else 0,
        said=cleaned(words, places),
        seconds=round(time.monotonic() - began, 1),
    )
