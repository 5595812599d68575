"""What of a chunk is embedded: advisory chunks as they are, code with the flaw that it fixes.

A question tells of a flaw in words. Code alone has few of them, so that the vector of a diff lies far
from every question. So the advisory's first words and the fix's own summary stand above the changed
lines; lines that a diff only shows around them are left out (ADR-0019 has the figures).
"""

from collections.abc import Container, Sequence

from fallback_plugins.solved_examples.interfaces import Chunk, ChunkKind, Embedder
from fallback_plugins.solved_examples.question import flaw_text
from fallback_plugins.solved_examples.store.schema import Meta
from fallback_tier.retrieval import SolvedExample

#: Raise it with every change of the text: vectors of another one are drift.
EMBEDDED_TEXT = "flaw-and-changes-1"

#: Characters of the flaw above a piece of code: a title and a sentence, a quarter of what the model
#: reads.
_FLAW_CHARS = 300

#: Characters of changed lines: with the flaw more than the model reads of most code.
_CODE_CHARS = 1_500


def described(embedder: Embedder) -> dict[Meta, str]:
    """What the store's ``meta`` says of vectors that this model made."""
    return {
        Meta.EMBEDDING_MODEL: embedder.model,
        Meta.EMBEDDING_SHA256: embedder.sha256,
        Meta.EMBEDDING_DIMENSION: str(embedder.dimension),
        Meta.EMBEDDING_TEXT: EMBEDDED_TEXT,
    }


def embedded_text(example: SolvedExample, chunk: Chunk) -> str:
    """One chunk's text for the model. ``chunk``: of this record."""
    if chunk.kind is ChunkKind.ADVISORY:
        return f"{chunk.context}\n{chunk.text}" if chunk.context else chunk.text
    flaw = flaw_text(example.advisory_text, (example.package,))[:_FLAW_CHARS]
    summary = flaw_text(example.fix_summary, (example.package,))
    return "\n".join((flaw, summary, _changed_lines(example, chunk)[:_CODE_CHARS]))


def _changed_lines(example: SolvedExample, chunk: Chunk) -> str:
    """The chunk's lines that its edits write; where they write none, those that they take away."""
    shown = [example.edits[number] for number in chunk.edits]
    pairs = [(set(edit.old.splitlines()), set(edit.new.splitlines())) for edit in shown]
    added = {line for old, new in pairs for line in new - old}
    removed = {line for old, new in pairs for line in old - new}
    lines = chunk.text.splitlines()
    return "\n".join(
        _stripped(lines, added) or _stripped(lines, removed) or _stripped(lines, lines)
    )


def _stripped(lines: Sequence[str], wanted: Container[str]) -> list[str]:
    return [line.strip() for line in lines if line in wanted]
