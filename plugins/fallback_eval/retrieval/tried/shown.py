"""A candidate as one text, for models that read question and candidate side by side."""

from fallback_plugins.solved_examples.interfaces import Candidate
from fallback_plugins.solved_examples.question import flaw_text

#: Characters of a record's advisory and of its edits: together some 256 tokens, of which a small
#: model reads the beginning best.
TEXT_CHARS = 500
CODE_CHARS = 700


def shown(candidate: Candidate) -> str:
    """What the record says of its flaw, then what its edits write."""
    example = candidate.example
    text = flaw_text(example.advisory_text, (example.package,))
    code = "\n".join(edit.new for edit in example.edits)
    return f"{text[:TEXT_CHARS]}\n{code[:CODE_CHARS]}"
