"""The checks of a configuration: what a fix needs, looked at without beginning one, and without a trace.

Store, checkpoints, keys, sandbox and disk: where one has failed every fix would. Model and judge: without
them recipes and examples go on, so they only degrade (ADR-0083).
"""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fallback_audit.checkpoints.keyring import SIGNING, Keyring
from fallback_audit.checkpoints.log import CheckpointLog, gone_because
from fallback_audit.checkpoints.writer import Checkpointer
from fallback_audit.events import GroundingJudged, ModelFailed
from fallback_audit.vocabulary import CallType
from fallback_tier.observing.chain import chain_lag
from fallback_tier.observing.health.disk import MIN_FREE_BYTES, disk
from fallback_tier.observing.health.model import judge_can_be_asked, model_can_be_asked
from fallback_tier.observing.health.report import Finding, degraded, failed, ok
from fallback_tier.observing.health.running import DEAR_FRESH_S, Check
from fallback_tier.observing.record import has_record, read_record
from fallback_tier.wiring import Configuration
from fallback_tier.wiring.places import check_keys
from fallback_tier.wiring.trail import audit_db, checkpoint_dir, keys_dir

#: Failed calls in a row by which a judge is one that keeps failing, and how far back they are looked for.
JUDGE_FAILING_AT = 3
JUDGE_LOOKED_BACK = timedelta(hours=24)

#: Times its own limit that an uncovered event may wait: writers count apart, and disks are slow at times.
_PATIENCE = 3


def checks_of(
    configuration: Configuration, *, min_free_bytes: int = MIN_FREE_BYTES
) -> tuple[Check, ...]:
    """What this configuration needs, in the order in which it is told."""
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
    """Each may raise FallbackError, which is a failed finding, and OSError."""

    def __init__(self, configuration: Configuration, min_free_bytes: int) -> None:
        self._configuration = configuration
        self._record = configuration.record
        self._state = configuration.state_dir
        self._min_free_bytes = min_free_bytes

    def store(self) -> Finding:
        """Read it through the store; whether it can be written, the rights of file and folder tell.

        Opening the file here would drop the locks that this process has on it (ADR-0091).
        """
        if not has_record(self._state, self._record):
            return ok("Nothing is recorded yet; the store is made by the first fix.")
        with read_record(self._state, self._record) as reader:
            last, _ = reader.tip()
        if self._record.database is not None:
            return ok(f"PostgreSQL answers; {last:,} events.")
        path = audit_db(self._state)
        for place in (path, path.parent):  # the log is made in the folder
            if not os.access(place, os.W_OK, effective_ids=True):
                return failed(
                    f"{path} can be read but not written: {place} allows no writing.",
                    "Give the file and its folder back to who runs this, or remount the disk for writing.",
                )
        return ok(f"{path} can be read and written; {last:,} events.")

    def keys(self) -> Finding:
        """There is a key to sign with, or a place where one can be made."""
        folder = keys_dir(self._record)
        keyring = Keyring.load(folder)
        if keyring.signing is not None:
            return ok(f"There is a key to sign with in {folder}.")
        if keyring.verifiers():
            keyring.signers()  # a folder for verifying only: says so
        if self._covered_before():
            return failed(
                f"{folder} has no {SIGNING}, and checkpoints were signed before: nothing can be recorded.",
                "Restore the folder of keys from its backup, or name it with --keys.",
            )
        check_keys(self._record)
        return ok(f"{folder} has no key yet; the first fix makes one.")

    def checkpoints(self) -> Finding:
        """They agree with the store, and are not far behind."""
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
                )
            if folder.is_dir() and keyring.signing is not None:  # as a writer does first of all
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

    def _covered_before(self) -> bool:
        return CheckpointLog(checkpoint_dir(self._state, self._record)).latest_size() > 0

    def disk(self) -> Finding:
        """Room where state, checkpoints and temporary files are."""
        places = [self._state, checkpoint_dir(self._state, self._record)]
        return disk(places, self._min_free_bytes)

    def sandbox(self) -> Finding:
        """One trivial command in a fresh one."""
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
        """Its server answers, and takes the key."""
        return model_can_be_asked(self._configuration)

    def judge(self) -> Finding:
        """The same of the judge; and it has not failed again and again."""
        found = judge_can_be_asked(self._configuration)
        if found.next_step or not self._has_judge():
            return found
        failing = self._failed_judgements()
        if failing >= JUDGE_FAILING_AT:
            return degraded(
                f"The judge's last {failing} calls failed; plans are handed on without its word.",
                "`fallback-tier audit log` names the fixes; their trails say how the calls failed.",
            )
        return found

    def _has_judge(self) -> bool:
        return bool(self._configuration.judge_model or self._configuration.judge_script)

    def _failed_judgements(self) -> int:
        """Since the judge's last verdict, of the last day."""
        if not has_record(self._state, self._record):
            return 0
        since = (datetime.now(UTC) - JUDGE_LOOKED_BACK).isoformat()
        kinds = frozenset({ModelFailed.__name__, GroundingJudged.__name__})
        count = 0
        with read_record(self._state, self._record) as reader:
            for stored in reader.events(kinds=kinds, since=since):
                if isinstance(stored.payload, GroundingJudged):
                    count = 0
                elif isinstance(stored.payload, ModelFailed):
                    count += stored.payload.call_type is CallType.JUDGE
        return count
