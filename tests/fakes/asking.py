"""One request, and a way to hear the answer out."""

from fallback_audit.vocabulary import CallType
from fallback_tier.ports import LanguageModel, Message, ModelAnswer, ModelRequest

REQUEST = ModelRequest(
    call_type=CallType.AUTHOR,
    system="You fix.",
    messages=(
        Message(role="user", content="fix it"),
        Message(role="assistant", content="no"),
        Message(role="user", content="again"),
    ),
    max_output_tokens=77,
)


def hear(model: LanguageModel, request: ModelRequest = REQUEST) -> tuple[list[str], ModelAnswer]:
    """The pieces of the answer, and the answer."""
    pieces: list[str] = []
    asking = model.ask(request)
    while True:
        try:
            pieces.append(next(asking))
        except StopIteration as end:
            return pieces, end.value
