"""CAMPAIGN.toml: its tables, and how it is read. docs/fleet.md shows an example.

Its paths are relative to the file. Errors name the invalid key.
"""

import hashlib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import (
    Field,
    PositiveInt,
    StrictStr,
    StringConstraints,
    ValidationError,
    model_validator,
)

from fallback_audit.event_types import Dollars
from fallback_audit.vocabulary import AffectedCode
from fallback_tier.budget.meter import BudgetLimits
from fallback_tier.budget.tally import microdollars
from fallback_tier.errors import first_fault
from fallback_tier.files.inputs import open_named, parse_toml
from fallback_tier.fleet.campaign_list import CampaignName
from fallback_tier.fleet.errors import CampaignError
from fallback_tier.fleet.scheduling import StartLimits
from fallback_tier.fleet.store_limiter import ProviderLimits
from fallback_tier.gates.builtin.proof_given import PROOF_TIMEOUT_S, Proof
from fallback_tier.repo import AllowedHost, ReleaseAge, Settings
from fallback_tier.wiring import Configuration
from fallback_tier.workers.problem import FIX_SECONDS, MAX_FIX_S
from fallback_tier.workers.tables import ModelTable, RepositoryName, RepositorySettings, Table

#: The longest run of a proof (seconds): the same as of an own gate.
MAX_PROOF_S = 3_600.0

#: Maximum number of a proof's arguments, and of its files: it shows one vulnerability.
MAX_WORDS, MAX_FILES = 100, 100

#: Maximum size of a proof's files together (bytes): they are, in base64, in the orders of its fixes, and
#: each order is a document in the audit trail (``MAX_EVIDENCE_BYTES``, 16 MiB).
MAX_PROOF_BYTES = 8 * 1024 * 1024

_Word = Annotated[StrictStr, StringConstraints(min_length=1, max_length=2_000)]


class ProofTable(Table):
    """One of ``[[proofs]]``. ``advisory``: its id or an alias; ``ecosystem``: where it concerns several;
    ``files``: place in the repository → the file. Read when the campaign is planned."""

    repository: RepositoryName = Field(description="which, by its name")
    advisory: _Word = Field(description="its id or an alias")
    ecosystem: _Word | None = Field(default=None, description="as the advisory names it; none: any")
    command: Annotated[tuple[_Word, ...], Field(min_length=1, max_length=MAX_WORDS)] = Field(
        description="exits with 0 exactly where the flaw is gone; an argument list, no shell"
    )
    files: Annotated[dict[_Word, Path], Field(max_length=MAX_FILES)] = Field(
        default_factory=dict, description="place in the repository → file, for that run alone"
    )
    timeout_s: float = Field(default=PROOF_TIMEOUT_S, gt=0, le=MAX_PROOF_S)
    end: str = Field(default="", description="the line that it prints where it ran to its end")

    @property
    def name(self) -> str:
        """Return a description for a person."""
        return f"proof of {self.advisory} in {self.repository}"

    def read(self) -> Proof:
        """Return the proof with its files' content. Raises CampaignError, ProofError."""
        files, bytes_left = dict[str, bytes](), MAX_PROOF_BYTES
        for path, source in self.files.items():
            files[path] = self._content(source, bytes_left)
            bytes_left -= len(files[path])
        return Proof(self.command, files, self.timeout_s, self.end)

    def _content(self, source: Path, bytes_left: int) -> bytes:
        try:
            with open_named(source) as file:
                content = file.read(bytes_left + 1)
        except OSError as error:
            raise CampaignError(
                f"{self.name}: {source}: {error.strerror}.",
                next_step="Name a file that can be read; paths are relative to the campaign's file.",
                kind="unreadable",
            ) from error
        if len(content) > bytes_left:
            raise CampaignError(
                f"{self.name}: its files are more than {MAX_PROOF_BYTES:,} bytes, {source} among them.",
                next_step="Let the proof make large inputs itself.",
                kind="too_large",
            )
        return content


_Name = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$")]


class EngineKind(StrEnum):
    """Who runs the fixes."""

    LOCAL = "local"
    TEMPORAL = "temporal"


class EngineTable(Table):
    """``local``: processes of this machine. ``temporal``: workflows of a cluster, run by
    `fallback-tier worker`."""

    kind: EngineKind = EngineKind.LOCAL
    address: str | None = Field(
        default=None, description="HOST:PORT of the cluster (temporal; default: that of fleet dev)"
    )
    namespace: str = Field(default="default", description="the cluster's namespace (temporal)")
    tls_ca: Path | None = Field(default=None, description="who vouches for the cluster (PEM)")
    tls_cert: Path | None = Field(default=None, description="this client's certificate (PEM)")
    tls_key: Path | None = Field(default=None, description="its private key (PEM)")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.kind is EngineKind.LOCAL and self.address is not None:
            raise ValueError(
                'address names a cluster: give kind = "temporal" with it, or leave it out'
            )
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key belong together: give both, or none")
        return self


#: Default number of manifests and locks that are read per repository for the list: far more than most have.
MANIFESTS = 2_000


class LimitTable(Table):
    """How much at once, and for how much money. Dollars are estimates from the dated price table."""

    fixes_per_host: PositiveInt = Field(default=2, le=64, description="at once on one machine")
    fixes_at_once: PositiveInt = Field(default=1_000, description="at once, all machines together")
    usd: Dollars | None = Field(default=None, description="hard stop for the whole campaign")
    usd_per_fix: Dollars | None = Field(default=None, description="hard stop for one fix")
    tokens_per_fix: int | None = Field(default=None, ge=0, description="hard stop for one fix")
    fix_s: float = Field(
        default=FIX_SECONDS, gt=0, le=MAX_FIX_S, description="a fix that takes longer is ended"
    )

    manifests_per_repository: PositiveInt = Field(
        default=MANIFESTS, le=1_000_000, description="read for the list, of each ecosystem"
    )

    @model_validator(mode="after")
    def _each_has_a_cap(self) -> Self:
        if self.usd is not None and self.usd_per_fix is None:
            raise ValueError("usd needs usd_per_fix: what a running fix may still use is reserved")
        if self.usd is not None and microdollars(self.usd) < microdollars(self.usd_per_fix or "0"):
            raise ValueError("usd is less than usd_per_fix: no fix could start")
        return self


class ProviderTable(Table):
    """What the model's provider allows in a minute, all workers together; none: no limit of ours."""

    name: _Name = Field(default="provider", description="campaigns of one name share its limits")
    requests_per_minute: PositiveInt | None = Field(default=None, description="calls")
    tokens_per_minute: PositiveInt | None = Field(default=None, description="read and written")


class PriorityTable(Table):
    """Feeds that the queue's order is made of, beside the advisories' severity; read when it is planned."""

    epss: Path | None = Field(default=None, description="FIRST's EPSS scores (CSV, may be .gz)")
    kev: Path | None = Field(default=None, description="CISA's known exploited ones (JSON)")


class Deliver(StrEnum):
    """What becomes of a proved patch besides its file. ``patch``: nothing. ``branch``: a commit on a branch
    of its own in the repository that the fix is about; nothing is pushed or checked out."""

    PATCH = "patch"
    BRANCH = "branch"


class DeliveryTable(Table):
    """Where proved patches go besides the record: REPOSITORY/FIX.patch and REPOSITORY/FIX in a folder."""

    deliver: Deliver = Field(default=Deliver.PATCH, description="patch, or branch")
    patches: Path | None = Field(default=None, description="folder for patches")
    reports: Path | None = Field(default=None, description="folder for a reviewer's reports")

    @property
    def is_asked(self) -> bool:
        """Return whether a proved patch is delivered outside the audit trail."""
        return (
            self.deliver is Deliver.BRANCH or self.patches is not None or self.reports is not None
        )


class CampaignRepository(RepositorySettings):
    """One repository. ``advisories``: reports and records that are about it alone."""

    advisories: tuple[Path, ...] = Field(default=(), description="for this repository alone")


class Campaign(Table):
    """The whole file, its paths absolute."""

    name: CampaignName = Field(description="small letters, digits, . _ -")
    advisories: tuple[Path, ...] = Field(
        default=(), description="OSV records, folders of them, scanners' reports: for all"
    )
    checkouts: tuple[Path, ...] = Field(
        default=(), description="folders: each git repository directly in one is one of ours"
    )
    allowed_urls: tuple[str, ...] = Field(
        default=(), description="what a repository's url must begin with, one of them"
    )
    repositories: dict[RepositoryName, CampaignRepository] = Field(
        default_factory=dict, description="name → repository"
    )
    proofs: tuple[ProofTable, ...] = Field(
        default=(), description="tests that show a flaw: of an advisory in a repository"
    )
    offline: bool = Field(default=False, description="as fix --offline")
    allow_hosts: tuple[AllowedHost, ...] = Field(
        default=(), description="hosts that package clients may ask too, as fix --allow-host"
    )
    release_age_days: ReleaseAge | None = Field(
        default=None, description="days that a release must be old, as fix --release-age"
    )
    whose_code: AffectedCode | None = Field(default=None, description="own or dependency")
    sandbox_waiver: str | None = Field(
        default=None, description="why targets' commands run unprotected (on record)"
    )
    engine: EngineTable = Field(default_factory=EngineTable)
    limits: LimitTable = Field(default_factory=LimitTable)
    provider: ProviderTable = Field(default_factory=ProviderTable)
    priority: PriorityTable = Field(default_factory=PriorityTable)
    delivery: DeliveryTable = Field(default_factory=DeliveryTable)
    model: ModelTable = Field(default_factory=ModelTable)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not (self.repositories or self.checkouts):
            raise ValueError("name repositories: a [repositories.NAME] table, or checkouts")
        if not (
            self.advisories
            or any(repository.advisories for repository in self.repositories.values())
        ):
            raise ValueError("name advisories, for all or for a repository")
        for name in ("base_url", "judge_base_url"):
            if "@" in urlsplit(getattr(self.model, name) or "").netloc:
                raise ValueError(
                    f"model.{name} has a user in it, which no order keeps: workers would ask without it. "
                    "Give the key in the environment (FALLBACK_TIER_API_KEY, FALLBACK_TIER_JUDGE_API_KEY)"
                )
        subjects = [(proof.repository, proof.advisory, proof.ecosystem) for proof in self.proofs]
        if len(set(subjects)) < len(subjects):
            raise ValueError("proofs: two are about the same advisory in the same repository")
        for name, repository in self.repositories.items():
            url = repository.url
            if url is not None and not url.startswith(self.allowed_urls or ("\0",)):
                raise ValueError(
                    f"repositories.{name}: its url does not begin with one of allowed_urls"
                )
            if url is not None and self.delivery.deliver is Deliver.BRANCH:
                raise ValueError(
                    f"repositories.{name} has a url, and a branch is made in a repository of this machine, "
                    'never pushed: give its path, or deliver = "patch"'
                )
        return self

    @property
    def digest(self) -> str:
        """Return the SHA-256 of what the list is made of. Limits, model and engine may change later."""
        fields = {"name", "advisories", "checkouts", "repositories", "offline", "whose_code"}
        fields |= {"proofs"} if self.proofs else set()  # so that older lists keep their digest
        return hashlib.sha256(self.model_dump_json(include=fields).encode()).hexdigest()

    @property
    def cap(self) -> int | None:
        """Return the campaign's cap, in millionths of a dollar."""
        return None if self.limits.usd is None else microdollars(self.limits.usd)

    @property
    def fix_cap(self) -> int | None:
        """Return the cap of one fix, in millionths of a dollar."""
        return None if self.limits.usd_per_fix is None else microdollars(self.limits.usd_per_fix)

    def start_limits(self, room: int | None = None) -> StartLimits:
        """Return what may run at once; ``room``: how many more fixes the engine accepts here."""
        return StartLimits(
            fixes_at_once=self.limits.fixes_at_once,
            at_most=room,
            cap=self.cap,
            fix_cap=self.fix_cap,
        )

    def provider_limits(self) -> ProviderLimits | None:
        """Return the provider's limits for the limiter, or None if no model is configured."""
        if self.model.model is None and self.model.script is None:
            return None
        return ProviderLimits.model_validate(self.provider.model_dump())

    def configuration(self) -> Configuration:
        """Return the configuration of a fix, without paths and keys."""
        return Configuration(
            state_dir=Path("/"),
            **self.model.chosen(),
            sandbox_waiver=self.sandbox_waiver,
            budget=BudgetLimits(
                usd_per_fix=self.limits.usd_per_fix, tokens_per_fix=self.limits.tokens_per_fix
            ),
            settings=Settings(
                **self.model.settings(),
                offline=self.offline,
                allow_hosts=self.allow_hosts,
                release_age_days=self.release_age_days,
                whose_code=self.whose_code,
            ),
        )


#: Largest file: a campaign of ten thousand named repositories has some 1 MB.
MAX_FILE_BYTES = 8 * 1024 * 1024


def read_campaign(path: Path) -> Campaign:
    """Return the campaign of a file. Raises CampaignError naming the file, the key, the reason and the
    next step.
    """
    try:
        with open_named(path) as file:
            data = file.read(MAX_FILE_BYTES + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise CampaignError(
            f"{path}: {reason}.",
            next_step="Name a campaign's TOML file that can be read.",
            kind="unreadable",
        ) from error
    if len(data) > MAX_FILE_BYTES:
        raise CampaignError(
            f"{path} is larger than {MAX_FILE_BYTES:,} bytes.",
            next_step="Make several campaigns, or name folders of checkouts.",
            kind="too_large",
        )
    return parse_campaign(text, path)


def parse_campaign(text: str, path: Path) -> Campaign:
    """Return the campaign of a text. Raises as ``read_campaign``; relative paths are below the folder
    of ``path``.
    """
    try:
        facts: dict[str, Any] = parse_toml(text)
    except (ValueError, RecursionError) as error:
        raise CampaignError(
            f"{path} is not TOML: {error}.",
            next_step="Correct this place.",
            kind="not_toml",
        ) from error
    _root_paths(facts, path.absolute().parent)
    try:
        return Campaign.model_validate(facts)
    except ValidationError as error:
        raise CampaignError(
            f"{path}: {first_fault(error, 'the whole')}.",
            next_step="docs/fleet.md has every key and an example.",
            kind="not_valid",
        ) from error


#: Keys with paths, of the file and of its tables.
_PATHS = {
    "": ("advisories", "checkouts"),
    "engine": ("tls_ca", "tls_cert", "tls_key"),
    "priority": ("epss", "kev"),
    "delivery": ("patches", "reports"),
    "model": ("script", "examples"),
}


def _root_paths(facts: dict[str, Any], root: Path) -> None:
    """Make paths relative to the file, whatever the working directory. Values of wrong types are left
    for the models to refuse.
    """
    tables = [(facts.get(name) if name else facts, keys) for name, keys in _PATHS.items()]
    proofs = facts.get("proofs")
    if isinstance(proofs, list):
        tables += [(table, ("files",)) for table in proofs]
    repositories = facts.get("repositories")
    if isinstance(repositories, dict):
        tables += [(table, ("path", "advisories")) for table in repositories.values()]
    for table, keys in tables:
        if isinstance(table, dict):
            for key in keys:
                if key in table:
                    table[key] = _rooted(table[key], root)


def _rooted(value: object, root: Path) -> object:
    if isinstance(value, str):
        return str(root / value)
    if isinstance(value, list):
        return [_rooted(item, root) for item in value]
    if isinstance(value, dict):
        return {key: _rooted(item, root) for key, item in value.items()}
    return value
