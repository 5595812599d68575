"""What a fix began with, as evidence, so that another process can resume it. Never a secret."""

from pathlib import Path

from pydantic import Field, JsonValue

from fallback_audit.events import Digest
from fallback_audit.frozen import Frozen
from fallback_tier.advisory import Advisory, AdvisoryBundle


class Setup(Frozen):
    """What was decided beside advisory and repository.

    ``configuration``: the host's, as JSON and without keys (``wiring.Configuration.recorded``); the gates
    only keep it. ``dry_run``, ``output``, ``commit`` (a branch; empty: one that is named after what is
    fixed) and ``report`` (a folder): where a proved patch goes; ``into``: the repository that gets the
    branch, where that is another one. ``several``: this fix is one ecosystem's
    part of a run over several advisories, whose patches are delivered together. ``batch_sha256``: what that
    run began with, as evidence; ``divisible``: what gates refuse is proved in smaller parts. ``bounds``:
    which limits of memory and processes held for the target's commands where the fix began, and Landlock.
    """

    configuration: dict[str, JsonValue] = Field(default_factory=dict)
    dry_run: bool = False
    output: str | None = None
    commit: str | None = None
    report: str | None = None
    into: str | None = None
    several: bool = False
    batch_sha256: Digest | None = None
    divisible: bool = False
    bounds: str = ""


class FixInputs(Frozen):
    """Everything that a resumed run needs and that the trail does not say."""

    repository: Path
    # The more particular first: every bundle would pass as an advisory.
    advisory: AdvisoryBundle | Advisory = Field(union_mode="left_to_right")
    setup: Setup = Setup()
