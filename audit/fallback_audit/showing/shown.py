"""An event as ``audit show`` prints it, as text: for exports, which are read without this program."""

from fallback_audit.events import AuditEvent
from fallback_audit.showing.describe import excerpt_of, sentence

#: Raised when the words of any event change: an export of before is then not held to today's.
WORDS = 2


def shown(event: AuditEvent) -> str:
    """The sentence; below it the lines that stand with it, e.g. the failure summary of a retry.

    A retry's own sentence says "fresh LLM run, no RAG"; each model call names its prompt's shape.
    """
    excerpt = excerpt_of(event)
    return sentence(event) if not excerpt else f"{sentence(event)}\n{excerpt}"
