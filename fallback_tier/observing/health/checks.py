"""The checks of a configuration: what a fix needs, checked without beginning one, and without a trace.

Store, checkpoints, keys, sandbox and disk: if one fails, every fix would fail. Model and judge: without
them recipes and examples continue, so they only degrade (ADR-0083).
"""

import email.utils
import os
import tempfile
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from pydantic import SecretStr

from fallback_audit.checkpoints.keyring import SIGNING, Keyring
from fallback_audit.checkpoints.log import CheckpointLog, gone_because
from fallback_audit.checkpoints.writer import Checkpointer
from fallback_audit.events import GroundingJudged, ModelFailed
from fallback_audit.vocabulary import CallType
from fallback_tier.errors import ConfigurationError, ToolError
from fallback_tier.observing.health.running import (
    DEAR_FRESH_S,
    Check,
    CheckState,
    Finding,
    degraded,
    failed,
    ok,
)
from fallback_tier.observing.record import chain_lag, has_record, read_record
from fallback_tier.wiring import Configuration
from fallback_tier.wiring.configuration import LOCAL_PREFIX
from fallback_tier.wiring.places import check_keys
from fallback_tier.wiring.trail import audit_db, checkpoint_dir, keys_dir

#: Largest response body, which is not read.
_MAX_BYTES = 1024 * 1024


class FirstAnswer(NamedTuple):
    """A server's response. ``status``: any one counts. ``date``: by the server's clock (RFC 9110
    §6.6.1) in UTC, if it states one that UTC can express.
    """

    status: int
    date: datetime | None


def first_answer(url: str, headers: Mapping[str, str], timeout_s: float) -> FirstAnswer:
    """Return the response to one GET, through the proxies of the environment. Raises OSError if there
    is none.
    """
    import httpx2

    from fallback_tier.network import LOOPBACK, TimeLimit, bounds

    try:
        host = httpx2.URL(url).host
        with (
            TimeLimit(timeout_s) as limit,
            httpx2.Client(
                headers={"accept-encoding": "identity", **headers},
                event_hooks=bounds(limit, _MAX_BYTES),
                timeout=timeout_s,
                trust_env=host not in LOOPBACK,
            ) as client,
            client.stream("GET", url) as response,
        ):
            return FirstAnswer(response.status_code, _date(response.headers.get("date", "")))
    except (httpx2.HTTPError, httpx2.InvalidURL, ImportError, ValueError) as error:
        raise OSError(str(error) or type(error).__name__) from error


def _date(text: str) -> datetime | None:
    try:
        date = email.utils.parsedate_to_datetime(text)
        # Without an offset (``-0000``), it is UTC (RFC 5322 §3.3).
        return date.astimezone(UTC) if date.tzinfo else date.replace(tzinfo=UTC)
    # OverflowError: the end of the year 9999 in another zone.
    except (ValueError, OverflowError):
        return None


#: Free disk space that a fix needs at least: a checkout, an environment, logs.
MIN_FREE_BYTES = 1024**3

#: Minimum number of files that an environment has.
_MIN_FREE_FILES = 20_000

#: Factor of the least space, below which the finding is degraded.
_EARLY = 2

_GIB = 1024**3

_MAKE_ROOM = (
    "Free some space: `fallback-tier cache clear` removes what later fixes can make anew; "
    "docs/runbook.md has the rest."
)

#: Time limit of a server's response; less than the time limit of a check.
_TIMEOUT_S = 4.0

#: Statuses of a refused key.
_KEY_REFUSED = frozenset({401, 403})

#: The first status of a server's own errors.
_SERVER_ERROR = 500

#: Failed calls in a row after which the judge counts as failing, and how far back calls are counted.
JUDGE_FAILING_AT = 3
_JUDGE_LOOKED_BACK = timedelta(hours=24)

#: Factor of the limit that an uncovered event may wait: each writer counts separately, and disks are
#: sometimes slow.
_PATIENCE = 3


class Room(NamedTuple):
    """Free space of a folder's disk. ``files`` None: this file system has no such limit."""

    free_bytes: int
    files: int | None


def room(folder: Path) -> Room:
    """Return the free space of the disk that has this folder, or would have it. Raises OSError."""
    while not folder.exists() and folder.parent != folder:
        folder = folder.parent
    stats = os.statvfs(folder)
    return Room(stats.f_bavail * stats.f_frsize, stats.f_favail if stats.f_files else None)


def disk(places: Iterable[Path], min_free_bytes: int = MIN_FREE_BYTES) -> Finding:
    """Return the worst finding of these folders and the one for temporary files. Raises OSError."""
    folders = dict.fromkeys([*places, Path(tempfile.gettempdir())])
    findings = [_judged(folder, room(folder), min_free_bytes) for folder in folders]
    order = [CheckState.FAILED, CheckState.DEGRADED, CheckState.OK]
    return min(findings, key=lambda finding: order.index(finding.state))


def _judged(folder: Path, free: Room, min_free_bytes: int) -> Finding:
    text = f"{free.free_bytes / _GIB:.1f} GiB are free for {folder}"
    if free.files is not None and free.files < _MIN_FREE_FILES:
        return failed(
            f"{free.files:,} more files fit on the disk of {folder}; a fix may need "
            f"{_MIN_FREE_FILES:,}.",
            _MAKE_ROOM,
        )
    if free.free_bytes < min_free_bytes:
        return failed(f"{text}; a fix may need {min_free_bytes / _GIB:.1f} GiB.", _MAKE_ROOM)
    if free.free_bytes < _EARLY * min_free_bytes:
        return degraded(
            f"{text}; below {min_free_bytes / _GIB:.1f} GiB no fix is begun.", _MAKE_ROOM
        )
    return ok(f"{text}.")


class _Asked(NamedTuple):
    """A model as it is configured, and the texts for its findings."""

    what: str
    model: str | None
    base_url: str | None
    key: SecretStr | None
    script: Path | None
    without: str
    option: str


def _can_be_asked(target: _Asked) -> Finding:
    if target.script is not None:
        if target.script.is_file():
            return ok(f"The {target.what} is the script {target.script}.")
        return degraded(f"There is no script {target.script}.", "Check the path.")
    if target.model is None:
        return ok(target.without)
    if target.model.startswith(LOCAL_PREFIX):
        return _local(target, Path(target.model.removeprefix(LOCAL_PREFIX)))
    return _served(target, target.model)


def _local(target: _Asked, file: Path) -> Finding:
    from fallback_plugins.messages_api.local import check_file, find_server

    try:
        check_file(file)
        program, _ = find_server()
    except (ConfigurationError, ToolError) as error:
        return degraded(error.problem, error.next_step)
    return ok(f"The {target.what} is {file}, served by {program} when it is asked.")


def _served(target: _Asked, model: str) -> Finding:
    from fallback_plugins.messages_api.model import PROVIDER_URL

    base_url = target.base_url or PROVIDER_URL
    url = _shown(base_url)
    try:
        headers = {"anthropic-version": "2023-06-01"}
        if target.key is not None:
            headers["x-api-key"] = target.key.get_secret_value()
        status = first_answer(f"{base_url.rstrip('/')}/v1/models", headers, _TIMEOUT_S).status
    except OSError as error:
        return degraded(
            f"{url}, which serves the {target.what} {model}, can't be reached: {error}.",
            f"Check the server, proxies and {target.option}. Recipes and examples go on without it.",
            kind="unreachable",
        )
    if status in _KEY_REFUSED:
        return degraded(
            f"{url} does not take the key of the {target.what} {model} (status {status}).",
            "Set another key in the environment and start this anew; docs/runbook.md names the variable.",
        )
    if status >= _SERVER_ERROR:
        return degraded(
            f"{url}, which serves the {target.what} {model}, answers with status {status}.",
            "Look at that server; calls are tried again by themselves.",
        )
    return ok(f"{url} answers; the {target.what} is {model}.")


def _shown(url: str) -> str:
    """Return scheme, host and port: an address may contain a password."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], "", "", ""))


def checks_of(
    configuration: Configuration, *, min_free_bytes: int = MIN_FREE_BYTES
) -> tuple[Check, ...]:
    """Return the checks of this configuration, in the order of their display."""
    look = _Looks(configuration, min_free_bytes)
    return (
        Check("store", look.store),
        Check("checkpoints", look.checkpoints),
        Check("keys", look.keys),
        Check("disk", look.disk),
        Check("sandbox", look.sandbox, fresh_s=DEAR_FRESH_S),
        Check("model", look.model, fresh_s=DEAR_FRESH_S),
        Check("judge", look.judge, fresh_s=DEAR_FRESH_S),
    )


class _Looks:
    """The checks. Each may raise FallbackError, which is a failed finding, and OSError."""

    def __init__(self, configuration: Configuration, min_free_bytes: int) -> None:
        self._configuration = configuration
        self._record = configuration.record
        self._state = configuration.state_dir
        self._min_free_bytes = min_free_bytes

    def store(self) -> Finding:
        """Read the audit trail; whether it can be written follows from the permissions of file and folder.

        Opening the file here would release the locks that this process has on it (ADR-0091).
        """
        if not has_record(self._state, self._record):
            return ok("Nothing is recorded yet; the store is made by the first fix.")
        with read_record(self._state, self._record) as reader:
            last, _ = reader.tip()
        if self._record.database is not None:
            return ok(f"PostgreSQL answers; {last:,} events.")
        path = audit_db(self._state)
        for required in (path, path.parent):  # SQLite creates its log in the folder
            if not os.access(required, os.W_OK, effective_ids=True):
                return failed(
                    f"{path} can be read but not written: {required} allows no writing.",
                    "Give the file and its folder back to who runs this, or remount the disk for writing.",
                )
        return ok(f"{path} can be read and written; {last:,} events.")

    def keys(self) -> Finding:
        folder = keys_dir(self._record)
        keyring = Keyring.load(folder)
        if keyring.signing is not None:
            return ok(f"There is a key to sign with in {folder}.", kind="signing_key")
        if keyring.verifiers():
            keyring.signers()  # raises: the folder is for verifying only
        covered = CheckpointLog(checkpoint_dir(self._state, self._record)).latest_size()
        if covered > 0:
            return failed(
                f"{folder} has no {SIGNING}, and checkpoints were signed before: nothing can be recorded.",
                "Restore the folder of keys from its backup, or name it with --keys.",
                kind="signing_key_gone",
            )
        check_keys(self._record)
        return ok(f"{folder} has no key yet; the first fix makes one.", kind="no_key_yet")

    def checkpoints(self) -> Finding:
        folder = checkpoint_dir(self._state, self._record)
        if not has_record(self._state, self._record):
            return self._checkpoints_without_a_store(folder)
        log, keys = CheckpointLog(folder), keys_dir(self._record)
        with read_record(self._state, self._record) as reader:
            keyring = Keyring.load(keys)
            if (gone := log.gone(keyring)) is not None:
                return failed(
                    f"{gone_because(gone, folder)[:1].upper()}{gone_because(gone, folder)[1:]}.",
                    "Restore the folder; docs/runbook.md says what else it can be.",
                    kind="known_checkpoint_missing",
                )
            if folder.is_dir() and keyring.signing is not None:  # as a writer does first
                Checkpointer(reader, log, keys, segments=reader.segments).check()
            lag = chain_lag(reader, log)
        if lag.events >= 2 * self._record.checkpoint_events:
            return failed(
                f"{lag.events:,} events have no checkpoint, so no more are recorded.",
                "`fallback-tier audit checkpoint` says why none can be made.",
            )
        if lag.seconds > _PATIENCE * self._record.checkpoint_seconds:
            return degraded(
                f"{lag.events:,} events have no checkpoint; the oldest is {lag.seconds:,.0f} s old.",
                "Make one: `fallback-tier audit checkpoint`. It is normal after a crash.",
            )
        return ok(f"{lag.events:,} of {lag.last:,} events wait for their checkpoint.")

    def _checkpoints_without_a_store(self, folder: Path) -> Finding:
        covered = CheckpointLog(folder).latest_size()
        if not covered:
            return ok("There are none yet, and nothing to cover.")
        return failed(
            f"A checkpoint of {covered:,} events is in {folder}, and there is no store.",
            "Name the right store (--state-dir, --audit-store). Only if it is gone, restore its backup.",
        )

    def disk(self) -> Finding:
        places = [self._state, checkpoint_dir(self._state, self._record)]
        return disk(places, self._min_free_bytes)

    def sandbox(self) -> Finding:
        waiver = self._configuration.sandbox_waiver
        if waiver is not None:
            return degraded(
                f"Targets' commands run unprotected: {waiver}.",
                "Take the waiver away unless every repository's code is trusted.",
            )
        from fallback_tier.sandbox.runners import BubblewrapSandbox

        sandbox = BubblewrapSandbox()
        sandbox.probe()
        return ok(f"A command ran in it; bounds: {sandbox.bounds}.")

    def model(self) -> Finding:
        configured = self._configuration
        return _can_be_asked(
            _Asked(
                "model",
                configured.model,
                configured.base_url,
                configured.api_key,
                configured.script,
                "No model is configured: fixes come from recipes and examples.",
                "--base-url",
            )
        )

    def judge(self) -> Finding:
        """Check the judge's server, and whether its last calls failed."""
        configured = self._configuration
        finding = _can_be_asked(
            _Asked(
                "judge",
                configured.judge_model,
                configured.judge_base_url,
                configured.judge_api_key,
                configured.judge_script,
                "No judge is configured: grounding is not evaluated.",
                "--judge-base-url",
            )
        )
        if finding.next_step or not (configured.judge_model or configured.judge_script):
            return finding
        failed_calls = self._failed_judgements()
        if failed_calls >= JUDGE_FAILING_AT:
            return degraded(
                f"The judge's last {failed_calls} calls failed; plans are handed on without its word.",
                "`fallback-tier audit log` names the fixes; their trails say how the calls failed.",
            )
        return finding

    def _failed_judgements(self) -> int:
        """Return the number of failed calls since the judge's last verdict, within the last day."""
        if not has_record(self._state, self._record):
            return 0
        since = (datetime.now(UTC) - _JUDGE_LOOKED_BACK).isoformat()
        kinds = frozenset({ModelFailed.__name__, GroundingJudged.__name__})
        count = 0
        with read_record(self._state, self._record) as reader:
            for stored in reader.events(kinds=kinds, since=since):
                if isinstance(stored.payload, GroundingJudged):
                    count = 0
                elif isinstance(stored.payload, ModelFailed):
                    count += stored.payload.call_type is CallType.JUDGE
        return count
