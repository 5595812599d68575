"""Records and answers of a solved-example memory: the boundary models of the RAG tier (ADR-0019).

A ``SolvedExample`` is a record: a validated past fix with its provenance. A ``FewShot`` is the part of one
record that is shown to a model, with the scores that selected it. An answer is one of ``RagHit``,
``RagDegraded`` and ``RagMiss``, each with an ``account`` that says why.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator

from fallback_audit.events import Digest
from fallback_audit.frozen import Frozen
from fallback_tier.files.source_paths import keeps_secrets
from fallback_tier.outcome import SearchReplace


def _of_a_file(edit: SearchReplace) -> SearchReplace:
    """Return the edit if it is not of a new file: replay needs the content that an edit was made on, and a
    new file has none (ADR-0013). Raises ValueError."""
    if edit.makes_file:
        raise ValueError("an example's edit has an `old` text")
    return edit


#: An edit of an existing file.
ExampleEdit = Annotated[SearchReplace, AfterValidator(_of_a_file)]


class ExampleOrigin(StrEnum):
    """How a record came to be: it says how far a reader may trust it."""

    #: The product's own fix, after every gate had passed.
    HARVESTED = "harvested"
    #: A data set of real fixes.
    DATASET = "dataset"
    #: The difference between a vulnerable release and the fixed one.
    RELEASE_PAIR = "release_pair"
    #: Written by a person for the purpose.
    WRITTEN = "written"


class ExampleProvenance(Frozen):
    """Where a record can be checked. ``source``: a commit's address, a fix id, two releases."""

    origin: ExampleOrigin
    source: str
    #: ``owner/name`` or an address of the code's repository; empty if there is none.
    repository: str = ""
    #: The commit that fixed it, or ``vulnerable..fixed`` versions.
    revision: str = ""


class SolvedExample(Frozen):
    """A validated past fix. ``file_sha256`` is the state (path → digest) its edits were made on.

    ``file_sha256`` may be empty: such a record can be shown, and never replayed (ADR-0013).
    """

    example_id: str
    advisory_id: str
    advisory_aliases: tuple[str, ...] = ()
    advisory_text: str
    ecosystem: str
    package: str
    cwe: tuple[str, ...] = ()
    #: Lower-case name of the language of the edits (``python``, ``javascript``, ``typescript``).
    language: str = ""
    edits: tuple[ExampleEdit, ...]
    file_sha256: Mapping[str, Digest]
    provenance: ExampleProvenance
    licence: str
    #: What the fix does, in a line, by its maker; empty if that is not known.
    fix_summary: str = ""


class FewShot(Frozen):
    """What a prompt shows of one record: whole structural units only, within the fence's cap."""

    example: SolvedExample
    content_sha256: Digest
    #: The chosen units of the advisory's text, in its order; "[…]" marks what was left out.
    text: str
    #: The chosen edits, each whole.
    edits: tuple[SearchReplace, ...]
    #: Component (``bm25``, ``cosine``, …) → score, as far as the component ran.
    scores: Mapping[str, float] = {}
    #: The same package, made on the same file content: a candidate for replay.
    identical: bool = False


def edit_line(edit: SearchReplace) -> str:
    """Return an edit as a prompt shows it: as in an answer in JSON, on one line."""
    return json.dumps(edit.model_dump(), ensure_ascii=False)


def example_text(
    example: SolvedExample,
    text: str,
    edits: Sequence[SearchReplace],
    write: Callable[[SearchReplace], str] = edit_line,
) -> str:
    """Return a prompt's text on a record, before it is fenced. Edits come last: a cut keeps the end. Those
    of files that keep secrets are left out.

    ``write``: returns an edit in the form of the wanted answer.
    """
    edits = [edit for edit in edits if not keeps_secrets(edit.path)]
    left_out = len(example.edits) - len(edits)
    withheld = any(keeps_secrets(edit.path) for edit in example.edits)
    why = "too long, or in a file of secrets" if withheld else "too long"
    return "\n".join(
        (
            f"example {example.example_id}, package {example.package}",
            text,
            *([f"what the fix does: {example.fix_summary}"] if example.fix_summary else []),
            "edits that fixed it:",
            *map(write, edits),
            *([f"({left_out} of {len(example.edits)} not shown: {why})"] if left_out else []),
        )
    )


class Floor(Frozen):
    """A safety bound: below ``value`` on ``score`` in ``mode``, a result is not believed."""

    name: Literal["routing", "chunk"]
    score: str
    mode: Literal["hybrid", "lexical"]
    value: float


class DroppedExample(Frozen):
    """A candidate that was looked at and not returned, and why."""

    example_id: str
    reason: str
    scores: Mapping[str, float] = {}


class RetrievalAccount(Frozen):
    """Why an answer is what it is: kept as evidence beside the event ``RetrievalQueried``."""

    mode: Literal["hybrid", "lexical"]
    #: Digest of the store's manifest: which corpus, chunker and model answered.
    manifest_sha256: Digest | None = None
    floors: tuple[Floor, ...] = ()
    #: Rounds of the corrective loop that ran (0: the first answer was used).
    rewrites: int = 0
    #: The examples that the prompt was offered, as in the event, and the content of each id. The tier fills
    #: both in from the examples themselves: they can't disagree with what was done.
    returned: tuple[str, ...] = ()
    content_sha256: Mapping[str, Digest] = {}
    scores: Mapping[str, Mapping[str, float]] = {}
    dropped: tuple[DroppedExample, ...] = ()
    notes: tuple[str, ...] = ()


class RagHit(Frozen):
    """Examples good enough for the prompt, best first, at most MAX_EXAMPLES."""

    verdict: Literal["hit"] = "hit"
    examples: tuple[FewShot, ...]
    evidence: str
    account: RetrievalAccount | None = None


class RagDegraded(Frozen):
    """As RagHit, but the retriever could not work as configured; ``evidence`` says why."""

    verdict: Literal["degraded"] = "degraded"
    examples: tuple[FewShot, ...]
    evidence: str
    account: RetrievalAccount | None = None


class RagMiss(Frozen):
    """Nothing good enough: the prompt has no examples."""

    verdict: Literal["miss"] = "miss"
    evidence: str
    account: RetrievalAccount | None = None


Retrieval = RagHit | RagDegraded | RagMiss
