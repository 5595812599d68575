"""Cases of ``make no-false-fixed``: what one holds, how its repository is made, and how a run of it ends.

Each file of ``cases/`` is one case (README.md). A case states its own registry of invented packages, a
repository, the commands by which its users install it, and the end that a careful engineer expects. The
runner and the judge share these types, and no code with the product.
"""

import json
import os
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from tests.campaigns.measuring.clones import commit, git
from tests.campaigns.measuring.frozen import Frozen
from tests.registry import Registry, Universe, serve

CASES = Path(__file__).parent / "cases"

#: Draws the half of each case from its id; never changed after the first run.
HALF_SEED = "no-false-fixed-1"

CLIENTS = ("pip", "uv", "poetry", "pipenv", "npm", "yarn", "pnpm")

#: One command of a real client, over packages of a few bytes.
COMMAND_TIMEOUT_S = 300

Ecosystem = Literal["PyPI", "npm"]
End = Literal["fixed", "patched", "not_affected", "unknown", "refused", "person", "error"]


class Half(StrEnum):
    """Half of the cases is looked into; of the other, only totals are read."""

    SEEN = "seen"
    UNSEEN = "unseen"


class Span(Frozen):
    """Affected versions: from ``introduced`` up to, and without, ``fixed``, or up to ``last_affected``."""

    introduced: str = "0"
    fixed: str = ""
    last_affected: str = ""


class Advisory(Frozen):
    """An advisory, rendered as an OSV record. ``raw``: the whole record as JSON, instead of the rest."""

    package: str = ""
    ranges: tuple[Span, ...] = ()
    versions: tuple[str, ...] = ()
    raw: str = ""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.raw:
            if self.package or self.ranges or self.versions:
                raise ValueError(
                    "`raw` is the whole record: leave out package, ranges and versions"
                )
            json.loads(self.raw)
        elif not self.package or not (self.ranges or self.versions):
            raise ValueError("state `package` with `ranges` or `versions`, or `raw`")
        return self

    def osv(self, case_id: str, ecosystem: Ecosystem) -> dict[str, Any]:
        """Return the OSV record."""
        if self.raw:
            record: dict[str, Any] = json.loads(self.raw)
            return record
        affected: dict[str, Any] = {"package": {"ecosystem": ecosystem, "name": self.package}}
        if self.ranges:
            kind = "SEMVER" if ecosystem == "npm" else "ECOSYSTEM"
            affected["ranges"] = [{"type": kind, "events": _events(span)} for span in self.ranges]
        if self.versions:
            affected["versions"] = [*self.versions]
        return {
            "id": f"TEST-{case_id}",
            "modified": "2026-01-01T00:00:00Z",
            "published": "2026-01-01T00:00:00Z",
            "summary": f"A vulnerability of the invented package {self.package}",
            "details": f"A vulnerability of the invented package {self.package}.",
            "affected": [affected],
        }


class Release(Frozen):
    """One release of an invented package, as the two orders of fields of npm and PyPI state it.

    ``files``: more texts of the archive. ``manifest``: further fields of an npm package.json, as JSON.
    ``yanked``: the reason. ``tag``: of a wheel. ``tags``: npm's dist-tags that name this release.
    ``published``: a moment (``2026-01-31`` or a longer ISO 8601 form), ``3 days ago``, or ``unknown``: the
    registry does not say; empty: a day after the release before it, from 2020-01-01 on.
    """

    name: str
    version: str
    requires: tuple[str, ...] = ()
    requires_python: str = ""
    yanked: str = ""
    sdist_only: bool = False
    extras: dict[str, tuple[str, ...]] = {}  # noqa: RUF012 (frozen)
    tag: str = "py3-none-any"
    dependencies: dict[str, str] = {}  # noqa: RUF012 (frozen)
    peerDependencies: dict[str, str] = {}  # noqa: RUF012, N815 (frozen; npm's name)
    optionalDependencies: dict[str, str] = {}  # noqa: RUF012, N815 (frozen; npm's name)
    deprecated: str = ""
    manifest: str = ""
    tags: tuple[str, ...] = ()
    files: dict[str, str] = {}  # noqa: RUF012 (frozen)
    published: str = Field(
        default="",
        pattern=r"^(|unknown|\d+ days? ago|\d{4}-\d\d-\d\d(T[0-9:.]+(Z|[+-]\d\d:\d\d)?)?)$",
    )

    def add_to(self, universe: Universe, ecosystem: Ecosystem) -> None:
        """Publish the release."""
        published = None if self.published == "unknown" else self.published
        if ecosystem == "PyPI":
            universe.pypi(
                self.name,
                self.version,
                self.requires,
                self.requires_python or None,
                self.yanked or None,
                self.extras,
                sdist_only=self.sdist_only,
                files=self.files,
                tag=self.tag,
                published=published,
            )
            return
        universe.npm(
            self.name,
            self.version,
            self.dependencies,
            peerDependencies=self.peerDependencies,
            optionalDependencies=self.optionalDependencies,
            deprecated=self.deprecated or None,
            files=self.files,
            manifest=json.loads(self.manifest or "{}"),
            published=published,
        )
        for tag in self.tags:
            universe.npm_tag(self.name, tag, self.version)


class Prepare(Frozen):
    """Commands, run by a shell in the repository, that make locks before the base commit."""

    commands: tuple[str, ...] = ()


class Install(Frozen):
    """A command by which a user of the repository installs it, run in ``folder``."""

    command: str
    folder: str = "."


class Expected(Frozen):
    """The end that a careful engineer expects, and why.

    ``also``: other acceptable ends. ``changed``: globs of the files that may change. ``holds``, ``keeps``:
    file → texts that it must hold afterwards. ``installs``: package → the versions that the install
    commands must give afterwards. ``mentions``: paths that the output must name.
    """

    end: Literal["fixed", "not_affected", "unknown", "refused", "person"]
    also: tuple[Literal["fixed", "not_affected", "unknown", "refused", "person"], ...] = ()
    changed: tuple[str, ...] = ()
    holds: dict[str, tuple[str, ...]] = {}  # noqa: RUF012 (frozen)
    keeps: dict[str, tuple[str, ...]] = {}  # noqa: RUF012 (frozen)
    installs: dict[str, tuple[str, ...]] = {}  # noqa: RUF012 (frozen)
    mentions: tuple[str, ...] = ()
    note: str = Field(min_length=10)

    @property
    def ends(self) -> frozenset[str]:
        """All acceptable ends."""
        return frozenset({self.end, *self.also})

    @model_validator(mode="after")
    def _fits_its_end(self) -> Self:
        if self.end == "fixed" and not self.changed:
            raise ValueError("a fix changes files: state `changed`")
        return self


class Case(Frozen):
    """One case. ``named``: the two orders name its kind. ``author``: "blind" did not see the product."""

    id: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)+$")
    report: str = Field(min_length=20)
    kind: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    named: bool
    author: Literal["seen", "blind"]
    ecosystem: Ecosystem
    advisory: Advisory
    packages: tuple[Release, ...] = ()
    files: dict[str, str]
    prepare: Prepare = Prepare()
    installs: tuple[Install, ...] = ()
    expected: Expected

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.id.partition("-")[0] not in CLIENTS:
            raise ValueError(f"the id begins with one of {', '.join(CLIENTS)}")
        for path in self.files:
            parts = PurePosixPath(path)
            if parts.is_absolute() or ".." in parts.parts or ".git" in parts.parts:
                raise ValueError(f"{path}: not a path inside the repository")
        return self

    @property
    def name(self) -> str:
        """The id, as the loop of every measure calls it."""
        return self.id

    @property
    def client(self) -> str:
        """The client that the id begins with."""
        return self.id.partition("-")[0]

    @property
    def half(self) -> Half:
        """Seen or unseen, by the id alone, so that new cases move no other."""
        first = sha256(f"{HALF_SEED}:{self.id}".encode()).digest()[0]
        return Half.UNSEEN if first % 2 else Half.SEEN

    @property
    def digest(self) -> str:
        """SHA-256 of the whole case: a row belongs to this form of it."""
        return sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()

    @property
    def record(self) -> dict[str, Any]:
        """The advisory as an OSV record."""
        return self.advisory.osv(self.id, self.ecosystem)

    def universe(self) -> Universe:
        """Return the case's registry of invented packages."""
        universe = Universe()
        for release in self.packages:
            release.add_to(universe, self.ecosystem)
        return universe


@dataclass(frozen=True)
class Ended:
    """How a tool's run ended. ``output``: what it printed, errors last."""

    end: End
    exit_code: int | None
    output: str
    seconds: float


class Outcome(StrEnum):
    """What the judge counts, the gravest first."""

    FALSE_FIXED = "false_fixed"
    FALSE_UNAFFECTED = "false_unaffected"
    WRONG_PLACE = "wrong_place"
    UNREQUESTED_MAJOR = "unrequested_major"
    LOST_BYTES = "lost_bytes"
    UNKNOWN = "unknown"
    OTHER_END = "other_end"
    AS_EXPECTED = "as_expected"


@dataclass(frozen=True)
class Judgement:
    """The gravest outcome, a sentence of why, and every other problem that the judge saw."""

    outcome: Outcome
    detail: str = ""
    others: tuple[tuple[Outcome, str], ...] = field(default=())


class CaseError(Exception):
    """A case that can't be read, or a repository that can't be made as the case states."""


def read_case(path: Path) -> Case:
    """Read one case. Raises CaseError, which names the file and each wrong field."""
    try:
        case = Case.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CaseError(f"{path}: {error}") from error
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, it['loc']))}: {it['msg']}" for it in error.errors()]
        raise CaseError(f"{path}: " + "; ".join(wrong)) from error
    if case.id != path.stem:
        raise CaseError(f"{path}: the id is {case.id!r}: a case's id is its file's name")
    return case


def load_cases(
    only: Sequence[str] = (), half: Half | None = None, folder: Path = CASES
) -> tuple[Case, ...]:
    """Return the cases by id: all, those named, or one half. Raises CaseError."""
    if only:
        return tuple(read_case(folder / f"{name}.toml") for name in only)
    cases = (read_case(path) for path in sorted(folder.glob("*.toml")))
    return tuple(case for case in cases if half in (None, case.half))


@contextmanager
def serving(case: Case, clients: Path | None = None) -> Iterator[tuple[Registry, dict[str, str]]]:
    """Serve the case's packages until the block ends: the registry, and the whole environment for any
    client. ``clients``: a folder of programs that come first in PATH."""
    with serve(case.universe()) as registry:
        yield registry, client_environ(registry, clients)


def client_environ(registry: Registry, clients: Path | None = None) -> dict[str, str]:
    """Return the environment in which every client asks this registry only and reads the project's
    configuration, but not this user's."""
    home = registry.scratch / "home"
    home.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_HIDDEN)}
    index = registry.pypi_url
    path = os.pathsep.join(filter(None, (str(clients or ""), kept.get("PATH", ""))))
    environ = {**kept, **registry.environ, **_SETTINGS, "PATH": path}
    # The project's own [tool.uv] is read, as by its users; the user's uv.toml is in neither folder.
    environ |= {"UV_NO_CONFIG": "", "XDG_CONFIG_DIRS": str(home)}
    environ |= {f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in _XDG}
    environ |= {"PIPENV_PYPI_MIRROR": index, "POETRY_PYPI_MIRROR_URL": index}
    environ |= {"POETRY_CACHE_DIR": str(home / "poetry"), "PIP_CACHE_DIR": str(home / "pip")}
    return {name: value for name, value in environ.items() if value}


def make_repository(case: Case, registry: Registry, environ: Mapping[str, str], root: Path) -> Path:
    """Write the repository, run ``prepare``, and commit it. Raises CaseError.

    In a file's text ``{{npm}}`` is the URL of the npm registry, ``{{pypi}}`` of the Python index and
    ``{{files}}`` of the folder of its archives.
    """
    root.mkdir(parents=True)
    names = {
        "npm": registry.npm_url,
        "pypi": registry.pypi_url,
        "files": f"{registry.url}/pypi/files",
    }
    for path, text in case.files.items():
        for name, url in names.items():
            text = text.replace("{{" + name + "}}", url)
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text.encode())
    for command in case.prepare.commands:
        run = run_command(command, root, environ)
        if run.returncode:
            raise CaseError(f"{case.id}: prepare `{command}` exited {run.returncode}: {_last(run)}")
    git(root, "init", "-q", "-b", "main")
    git(root, "-c", "core.excludesFile=", "add", "-A", ".")
    commit(root, "Base")
    return root


def run_command(
    command: str, folder: Path, environ: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    """Run a shell command with this environment to its end. Raises subprocess.TimeoutExpired."""
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=COMMAND_TIMEOUT_S,
    )


#: What would choose another server, or another environment's modules.
_HIDDEN = (
    "ANTHROPIC_",
    "FALLBACK_TIER_",
    "PYTHONHOME",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "UV_",
    "PIP_",
    "npm_",
)

_XDG = ("CACHE", "CONFIG", "DATA", "STATE")

#: Settings that make clients quiet, unattended and alike on every machine.
_SETTINGS = {
    "CI": "1",
    "NO_COLOR": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIPENV_IGNORE_VIRTUALENVS": "1",
    "PIPENV_NOSPIN": "1",
    "PIPENV_VENV_IN_PROJECT": "1",
    "PIPENV_YES": "1",
    "POETRY_NO_INTERACTION": "1",
    "POETRY_VIRTUALENVS_IN_PROJECT": "true",
    "npm_config_ignore_scripts": "true",
    "npm_config_omit_lockfile_registry_resolved": "false",
    "COLUMNS": "200",
}


def _events(span: Span) -> list[dict[str, str]]:
    events = [{"introduced": span.introduced}]
    if span.fixed:
        events.append({"fixed": span.fixed})
    if span.last_affected:
        events.append({"last_affected": span.last_affected})
    return events


def _last(run: "subprocess.CompletedProcess[str]") -> str:
    return " ".join(f"{run.stdout}\n{run.stderr}".split())[-600:]
