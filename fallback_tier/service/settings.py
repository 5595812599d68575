"""The settings that ``fallback-tier serve --config FILE`` reads, and the configurations made of them.

docs/service-configuration.md is generated from this model.
"""

import hashlib
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import (
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from fallback_audit.frozen import Frozen
from fallback_tier.budget.meter import BudgetLimits
from fallback_tier.errors import ConfigurationError, first_fault
from fallback_tier.files.inputs import open_named, parse_toml
from fallback_tier.repo import AllowedHost, ReleaseAge, Settings
from fallback_tier.service.queue import MAX_QUEUED, Submission
from fallback_tier.service.roles import Role
from fallback_tier.wiring import Configuration, RecordSettings
from fallback_tier.workers.problem import FIX_SECONDS
from fallback_tier.workers.tables import ModelTable, RepositoryName, RepositorySettings, Table

#: Default address: this machine only.
LOOPBACK, PORT = "127.0.0.1", 8765

#: Largest body: an advisory has at most 4 MB, and another program's JSON may double that.
BODY_BYTES = 8 * 1024 * 1024 + 65_536

#: Free disk space that a fix needs at least: a checkout, an environment, logs.
MIN_FREE_BYTES = 1024**3

#: Largest configuration file: some thousands of repositories.
MAX_CONFIG_BYTES = 1024 * 1024

_Seconds = Annotated[float, Field(gt=0, le=7 * 86_400, allow_inf_nan=False)]


class Listening(Table):
    """Where the service is reached. Without TLS or a named proxy that is this machine alone."""

    host: str = Field(default=LOOPBACK, description="address to listen on")
    port: int = Field(default=PORT, ge=0, le=65_535, description="port; 0: any free one")
    tls_cert: Path | None = Field(default=None, description="certificate chain (PEM)")
    tls_key: Path | None = Field(default=None, description="its private key (PEM)")
    trusted_proxies: tuple[str, ...] = Field(
        default=(),
        description="addresses of proxies that end TLS; whose X-Forwarded-For is believed",
    )

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key belong together: give both, or none")
        return self

    @field_validator("trusted_proxies")
    @classmethod
    def _some_addresses(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        """Reject a network of all addresses: a trusted proxy may claim any client address."""
        for proxy in proxies:
            if not ip_network(proxy, strict=False).prefixlen:
                raise ValueError(f"{proxy!r} is everybody: name the proxies")
        return proxies


class Limits(Table):
    """What the service takes at once, and from whom. Times are seconds, sizes bytes."""

    concurrent_fixes: int = Field(default=2, ge=1, le=64, description="fixes that run at once")
    concurrent_attempts: int = Field(default=2, ge=1, le=16, description="attempts at once")
    queued_fixes: int = Field(
        default=MAX_QUEUED, ge=1, le=100_000, description="fixes that may wait"
    )
    min_free_bytes: int = Field(
        default=MIN_FREE_BYTES,
        ge=0,
        description="no fix starts with less free space in the state folder",
    )
    fix_s: _Seconds = Field(default=FIX_SECONDS, description="a fix that takes longer is ended")
    body_bytes: int = Field(
        default=BODY_BYTES, ge=1_024, le=64 * 1024**2, description="of a request"
    )
    request_s: _Seconds = Field(default=60.0, description="until an answer begins, streams apart")
    shutdown_s: _Seconds = Field(
        default=20.0,
        description="for requests in hand when the service ends; fixes go on after a restart",
    )
    requests_per_key: str = Field(default="600/minute", description="of one key or person")
    requests_per_address: str = Field(
        default="1200/minute", description="of one address, its keys together"
    )
    failed_sign_ins: str = Field(
        default="10/minute",
        description="wrong keys and passwords of one address, and wrong passwords of one name",
    )
    connections: int = Field(
        default=2_000, ge=2, le=50_000, description="open at once; more are closed"
    )
    connections_per_address: int = Field(
        default=1_000,
        ge=1,
        le=50_000,
        description="of one address, and never more than half of all; a trusted proxy's are not counted so",
    )
    headers_s: _Seconds = Field(
        default=10.0, description="for a request's head to arrive; its body has request_s"
    )
    followers: int = Field(default=600, ge=1, le=10_000, description="event streams at once")


class RecordTable(Table):
    """Where the record is. The address of a database is in FALLBACK_TIER_AUDIT_STORE, or --audit-store."""

    checkpoints: Path | None = Field(
        default=None, description="signed checkpoints, best on another disk"
    )
    keys: Path | None = Field(default=None, description="signing and trusted keys")
    keep_prompts: bool = Field(default=False, description="keep raw prompts; admins may read them")


class OidcSettings(Table):
    """People sign in at an issuer. The client's secret is in FALLBACK_TIER_OIDC_SECRET; the address that
    the issuer sends people back to is PUBLIC_URL/v1/session/oidc/callback."""

    issuer: str = Field(description="its address; /.well-known/openid-configuration is below it")
    client_id: str = Field(description="of this service, at the issuer")
    public_url: str = Field(description="this service's address, as browsers know it")
    name_claim: str = Field(
        default="email", description="the claim that goes on record as a person's name"
    )
    roles_claim: str = Field(default="groups", description="the claim that lists a person's groups")
    roles: dict[str, tuple[Role, ...]] = Field(
        description="group → roles here; who is in none may do nothing"
    )
    session_s: _Seconds = Field(
        default=3_600.0,
        description="until such a person signs in again: groups are read then, and only then",
    )

    @property
    def stamp(self) -> str:
        """Return a digest of what decides names and roles: the issuer, claims and groups."""
        settings = self.model_dump_json(exclude={"public_url", "session_s"})
        return hashlib.sha256(settings.encode()).hexdigest()

    @model_validator(mode="after")
    def _encrypted(self) -> Self:
        for name in ("issuer", "public_url"):
            parts = urlsplit(getattr(self, name))
            if parts.query or "#" in getattr(self, name):
                raise ValueError(f"{name} has neither a query nor a fragment")
            if parts.scheme != "https" and parts.hostname not in ("localhost", LOOPBACK):
                raise ValueError(f"{name} begins with https://")
        return self


class PeopleSettings(Table):
    """How people sign in, besides keys. Without any of these nobody can."""

    local: bool = Field(
        default=False, description="by a password of this machine: `fallback-tier keys person`"
    )
    session_s: _Seconds = Field(
        default=8 * 3_600.0, description="until a person of this machine signs in again"
    )
    oidc: OidcSettings | None = Field(default=None, description="at an OpenID Connect issuer")


class ServiceSettings(Table):
    """The whole file."""

    state_dir: Path | None = Field(
        default=None, description="as --state-dir: record, evidence, queue"
    )
    allow_hosts: tuple[AllowedHost, ...] = Field(
        default=(), description="hosts that package clients may ask too, as fix --allow-host"
    )
    release_age_days: ReleaseAge | None = Field(
        default=None, description="days that a release must be old, as fix --release-age"
    )
    sandbox_waiver: str | None = Field(
        default=None,
        description="why targets' commands run unprotected (on record); none: in the sandbox",
    )
    listen: Listening = Field(default_factory=Listening)
    limits: Limits = Field(default_factory=Limits)
    record: RecordTable = Field(default_factory=RecordTable)
    model: ModelTable = Field(default_factory=ModelTable)
    budget: BudgetLimits = Field(default_factory=BudgetLimits)
    people: PeopleSettings = Field(default_factory=PeopleSettings)
    repositories: dict[RepositoryName, RepositorySettings] = Field(
        default_factory=dict, description="name → repository; no other can be named"
    )


def read_settings(path: Path | None) -> ServiceSettings:
    """Return the settings in a TOML file; None: the defaults. Raises ConfigurationError."""
    return ServiceSettings() if path is None else parse_settings(_content(path), str(path))


def parse_settings(text: str, source: str) -> ServiceSettings:
    """Return the settings in a TOML text. Raises ConfigurationError naming the first fault."""
    try:
        facts: dict[str, Any] = parse_toml(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"--config {source} is not TOML: {error}.",
            next_step="Correct this place.",
            kind="not_toml",
        ) from error
    try:
        return ServiceSettings.model_validate(facts)
    except ValidationError as error:
        raise ConfigurationError(
            f"--config {source}: {first_fault(error, 'the whole')}.",
            next_step="docs/service-configuration.md has every setting.",
            kind="not_valid",
        ) from error


def _content(path: Path) -> str:
    try:
        with open_named(path) as file:
            data = file.read(MAX_CONFIG_BYTES + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(
            f"--config {path}: {reason}.",
            next_step="Name a TOML file that can be read.",
            kind="unreadable",
        ) from error
    if len(data) > MAX_CONFIG_BYTES:
        raise ConfigurationError(
            f"--config {path} is larger than {MAX_CONFIG_BYTES:,} bytes.",
            next_step="Run several services, each with some of the repositories.",
            kind="too_large",
        )
    return text


class Secrets(Frozen):
    """Secrets from the environment, in no file: keys, and the addresses of databases."""

    api_key: SecretStr | None = None
    judge_api_key: SecretStr | None = None
    database: SecretStr | None = None
    fleet: SecretStr | None = None
    oidc: SecretStr | None = None


def record_settings(settings: ServiceSettings, secrets: Secrets) -> RecordSettings:
    """Return where the audit trail is."""
    table = settings.record
    return RecordSettings(
        database=secrets.database,
        checkpoints=table.checkpoints,
        keys=table.keys,
        keep_prompts=table.keep_prompts,
    )


def configuration(
    settings: ServiceSettings,
    state_dir: Path,
    secrets: Secrets,
    repository: RepositorySettings | None = None,
    submission: Submission | None = None,
) -> Configuration:
    """Return the configuration that the command line would make of these options."""
    return Configuration(
        state_dir=state_dir,
        record=record_settings(settings, secrets),
        **settings.model.chosen(),
        sandbox_waiver=settings.sandbox_waiver,
        budget=settings.budget,
        gates=None if repository is None else repository.gates,
        api_key=secrets.api_key,
        judge_api_key=secrets.judge_api_key,
        secrets=tuple(value for _, value in secrets if value is not None),
        settings=Settings(
            **settings.model.settings(),
            offline=submission is not None and submission.offline,
            allow_hosts=settings.allow_hosts,
            release_age_days=settings.release_age_days,
            whose_code=None if submission is None else submission.whose_code,
        ),
    )
