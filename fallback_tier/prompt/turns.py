"""The turns of a conversation with an author, and the text of each of ours."""

from typing import Final

from fallback_audit.frozen import Frozen
from fallback_tier.ports import Message
from fallback_tier.repo import AnswerForm

#: The assistant's turn in place of a rejected answer: chat templates require turns to alternate, and the
#: next turn quotes the model's text, as data.
REJECTED_TURN = "(This answer was rejected. The next message quotes it.)"

#: The same for an answer that declined because code was missing.
DECLINED_TURN = "(I declined: the code that must change was not shown.)"

#: The form of an answer, in a turn that asks again.
ONE: Final = {
    AnswerForm.JSON: "one JSON object",
    AnswerForm.BLOCKS: "one plan in the form that was told",
}

MORE = """\
You declined:
{reason}

Here is the code that you named, as far as the repository has it, beside the snippets of my first message. \
The fence code of this message is {nonce}.

{snippets}

Answer my first message with all of these snippets at hand: {one}, nothing else.
"""

REPAIR = """\
Your previous answer was rejected. The fence code of this message is {nonce}.

What was wrong with it:
{problems}

The rejected answer:
{answer}

Answer my first message again, with what was wrong corrected: {one}, nothing else.
"""

DOUBT = """\
Your previous answer claims what nothing that I gave you supports. The fence code of this message \
is {nonce}.

What is not supported:
{problems}

The answer:
{answer}

Answer my first message again: {one}, nothing else.
"""

#: Never used for a first generation: it makes a model refuse, and use less of its knowledge (ADR-0022).
STRICT_INSTRUCTION = """\
A stricter rule holds now. Use only what the advisory, the snippets and the failure summary state, and \
prefer their wording: no name, version, path or behaviour that does not stand there, neither in the \
rationale nor in an edit. If no fix can be made on that ground, refuse.
"""


class Conversation(Frozen):
    """What is sent: turns that alternate, and the random parts in them."""

    messages: tuple[Message, ...]
    nonces: tuple[str, ...]

    def and_then(self, model_turn: str, our_turn: str, nonce: str) -> "Conversation":
        """Return the conversation with the model's turn, then ours, whose fences have this nonce."""
        turns = (
            Message(role="assistant", content=model_turn),
            Message(role="user", content=our_turn),
        )
        return Conversation(messages=(*self.messages, *turns), nonces=(*self.nonces, nonce))
