"""What a request may use at most, before anybody has seen its answer."""

import json

from fallback_tier.ports import ModelRequest

#: UTF-8 bytes that a token has at least. The tokenizers in use are byte-level: none makes two tokens of
#: one byte. Prose and code have 3 to 4 bytes a token, but what is in a prompt is not ours to choose: a
#: text of rare characters comes near to 1, and a cap that such a text could pass would be none. What is
#: booked too much is given back when the server has reported.
BYTES_PER_TOKEN = 1

#: Tokens that a server adds by itself: turns, and what it says where it enforces a schema (the
#: provider documents up to about 700 for tools).
OVERHEAD_TOKENS = 1_024


def input_tokens_at_most(request: ModelRequest) -> int:
    """A bound on what the server reads."""
    size = len(request.text.encode("utf-8", "surrogatepass"))
    if request.answer_schema is not None:
        size += len(json.dumps(request.answer_schema).encode())
    return -(-size // BYTES_PER_TOKEN) + OVERHEAD_TOKENS


def tokens_at_most(request: ModelRequest) -> int:
    """A bound on what it reads and writes."""
    return input_tokens_at_most(request) + request.max_output_tokens
