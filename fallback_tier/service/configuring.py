"""From the service's settings to the configuration of a fix, an attempt, the record."""

from pathlib import Path

from pydantic import SecretStr

from fallback_audit.frozen import Frozen
from fallback_tier.repo import Settings
from fallback_tier.service.queue.orders import Submission
from fallback_tier.service.settings import ServiceSettings
from fallback_tier.wiring import Configuration, RecordSettings
from fallback_tier.workers.repositories import RepositorySettings


class Secrets(Frozen):
    """What stands in the environment and in no file: keys, and the addresses of databases."""

    api_key: SecretStr | None = None
    judge_api_key: SecretStr | None = None
    database: SecretStr | None = None
    fleet: SecretStr | None = None
    oidc: SecretStr | None = None


def record_settings(settings: ServiceSettings, secrets: Secrets) -> RecordSettings:
    """Where the record is."""
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
    """As the command line would have it with these options."""
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
