"""Raw results of a real run: what became of each project, told from its audit trail.

::

    runs.jsonl                     one run a line, in the order in which they were made
    transcripts/NAME-SEED.json.gz  every prompt, answer, event, patch and gate log of that run
    report.md                      made from runs.jsonl

A row is computed from the events that its transcript holds, so that it can be computed again.
"""

import gzip
import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from fallback_audit.events import AuditEvent, Digest, event_adapter
from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import Provenance
from fallback_eval.campaign import RowError, Rows
from fallback_eval.fixes.facts import FixFacts, facts_of
from fallback_eval.retrieval.results import EvaluationError
from fallback_tier.errors import first_fault
from fallback_tier.files.whole import write_whole
from fallback_tier.repo import AnswerForm

RUNS, TRANSCRIPTS, REPORT = "runs.jsonl", "transcripts", "report.md"

#: A transcript, unpacked: four attempts of three calls with 100 KB of prompt each, and their logs.
MAX_TRANSCRIPT_BYTES = 8 * 1024 * 1024


class FixRun(Frozen):
    """One run over one project. ``setup``: in words, what served the model and how."""

    project: str
    weakness: str
    cwe: str
    ecosystem: str
    seed: int
    date: str
    model: str
    provenance: Provenance
    setup: str
    answer_form: AnswerForm = AnswerForm.JSON
    tool_version: str
    facts: FixFacts
    transcript_sha256: Digest

    @property
    def key(self) -> tuple[str, int]:
        """What a run is known by."""
        return self.project, self.seed


def _line(run: FixRun) -> str:
    return json.dumps(run.model_dump(mode="json", exclude_defaults=True))


#: In the order in which they were made. The page is ``FixFolder.publish``'s: it is written more often.
_ROWS = Rows(FixRun, key=lambda run: run.key, dump=_line, name=RUNS)


@dataclass(frozen=True)
class FixFolder:
    """Where the runs are kept."""

    path: Path

    def runs(self) -> tuple[FixRun, ...]:
        """All runs, none where there is no file yet. Raises EvaluationError: not of the format."""
        try:
            return _ROWS.read(self.path)
        except RowError as error:
            raise EvaluationError(
                f"{error.place} is not a run: {first_fault(error.fault, 'the line')}.",
                next_step="Take the line out, and run that project again.",
            ) from error

    def add(self, run: FixRun, transcript: bytes) -> None:
        """Keep a run, in place of one of the same project and seed: the transcript first."""
        place = self._transcript(run.key)
        place.parent.mkdir(parents=True, exist_ok=True)
        _replace(place, transcript)
        _ROWS.keep(run, self.path)

    def publish(self, page: str) -> None:
        """Write the report."""
        _replace(self.path / REPORT, page.encode())

    def faults(self, page: str) -> Iterator[str]:
        """Every way in which report, rows and transcripts no longer follow from one another."""
        runs = self.runs()
        if not runs:
            yield f"there is no run in {str(self.path)!r}"
            return
        for run in runs:
            yield from self._run_faults(run)
        known = {self._transcript(run.key).name for run in runs}
        there = {place.name for place in (self.path / TRANSCRIPTS).glob("*")}
        yield from (f"{TRANSCRIPTS}/{name} belongs to no run" for name in sorted(there - known))
        report = self.path / REPORT
        if not report.exists() or report.read_text(encoding="utf-8") != page:
            yield f"{REPORT} does not follow from {RUNS}: make it again"

    def _run_faults(self, run: FixRun) -> Iterator[str]:
        place = self._transcript(run.key)
        try:
            packed = place.read_bytes()
            if hashlib.sha256(packed).hexdigest() != run.transcript_sha256:
                yield f"{TRANSCRIPTS}/{place.name} was altered"
            elif facts_of(events_of(unpack(packed))) != run.facts:
                yield f"the row of {run.project} (seed {run.seed}) does not follow from its transcript"
        except (OSError, EvaluationError) as error:
            yield f"{TRANSCRIPTS}/{place.name} can't be read: {error}"

    def _transcript(self, key: tuple[str, int]) -> Path:
        return self.path / TRANSCRIPTS / f"{key[0]}-{key[1]}.json.gz"


def pack(transcript: Mapping[str, object]) -> bytes:
    """A transcript's bytes: the same transcript, the same bytes."""
    text = json.dumps(transcript, ensure_ascii=False, indent=1, sort_keys=True)
    return gzip.compress(text.encode("utf-8", "replace"), mtime=0)


def unpack(packed: bytes) -> Mapping[str, object]:
    """What ``pack`` packed. Raises EvaluationError: not that, or larger than MAX_TRANSCRIPT_BYTES."""
    try:
        with gzip.open(io.BytesIO(packed)) as file:
            text = file.read(MAX_TRANSCRIPT_BYTES + 1)
        read = json.loads(text) if len(text) <= MAX_TRANSCRIPT_BYTES else None
    except (OSError, EOFError, ValueError) as error:
        raise _unreadable(str(error)) from error
    if not isinstance(read, dict):
        raise _unreadable(f"no object of at most {MAX_TRANSCRIPT_BYTES:,} bytes")
    return read


def events_of(transcript: Mapping[str, object]) -> Sequence[AuditEvent]:
    """The events of a transcript, in order. Raises EvaluationError."""
    events = transcript.get("events")
    try:
        if not isinstance(events, list):
            raise _unreadable("it has no events")
        return [event_adapter.validate_python(one) for one in events]
    except ValidationError as error:
        raise _unreadable(first_fault(error, "an event")) from error


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)


def _unreadable(why: str) -> EvaluationError:
    return EvaluationError(
        f"A transcript can't be used: {why}.",
        next_step="Run that project again.",
        kind="bad_transcript",
    )
