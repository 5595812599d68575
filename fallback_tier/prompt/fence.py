"""The one fence that every untrusted text passes on its way into a prompt.

1. line ends become ``\n``; what isn't a character (a lone surrogate) becomes its escape;
2. the *whole* text is scanned for attempts to talk to the model (``scan``);
3. secrets are removed (``redact``);
4. text over the cap is cut: head 25 %, tail 75 % (a log's end says most), at a line end if that costs
   little, otherwise at a character, and a marker says how many bytes are missing;
5. hidden characters are shown by their code point, the nonce is removed;
6. every line gets the prefix, and the text is enclosed by two markers that contain the nonce.

So nothing inside can look like the end of the fence: an end marker has no prefix, and a nonce that
its author could not know. This mitigates injection; it doesn't eliminate it. Hence the gates.
"""

import re
from bisect import bisect_right
from enum import StrEnum
from functools import cache
from itertools import accumulate
from typing import Any

from fallback_audit.frozen import Frozen
from fallback_tier.errors import ConfigurationError
from fallback_tier.limits import MAX_FENCED_SUMMARY_BYTES
from fallback_tier.prompt.characters import show_hidden
from fallback_tier.prompt.redact import redact_secrets

#: Begins every line inside a fence.
PREFIX = "| "

#: Replaces the nonce inside a text. Shorter than a nonce, so that no cap is exceeded.
_NONCE_STAND_IN = "[nonce]"

_NONCE = re.compile(r"[0-9a-f]{32}")

#: Bytes beyond the kept part of a long text that are also searched, because a secret may begin there and
#: reach into it: a private key of 8,192 bits is 6.4 kB in PEM.
_MARGIN_BYTES = 8 * 1024

#: A cut moves to the nearest line end if that costs less than this part of the kept text.
_LINE_END_COST = 0.5


class SourceKind(StrEnum):
    """Where untrusted text came from: stated in the fence's header, and sets its cap."""

    ADVISORY = "advisory"
    REPOSITORY_SNIPPET = "repository_snippet"
    SOLVED_EXAMPLE = "solved_example"
    PRIOR_ATTEMPT_SUMMARY = "prior_attempt_summary"
    PREVIOUS_ANSWER = "previous_answer"
    PROOF_FAILURE = "proof_failure"
    PLAN = "plan"

    @property
    def max_bytes(self) -> int:
        """Cap of the whole fence, markers and prefixes counted in (UTF-8 bytes)."""
        return _MAX_BYTES[self]


#: Nine of ten OSV texts are below 1.6 kB; in a long one, what matters is near the beginning and the end.
MAX_FENCED_ADVISORY_BYTES = 6 * 1024
#: A snippet has at most context.MAX_SNIPPET_BYTES; the rest is for prefixes, so that code is rarely cut
#: here (a cut line can't be copied into an edit).
MAX_FENCED_SNIPPET_BYTES = 8 * 1024
#: Four examples then take no more room than the repository's own code.
MAX_FENCED_EXAMPLE_BYTES = 3 * 1024
#: Failing tests, assertions and frames, each up to its share of a failure summary.
MAX_FENCED_PROOF_BYTES = 3 * 1024
#: A plan of 2,048 output tokens is about 8 kB; its beginning and end show what was wrong.
MAX_FENCED_ANSWER_BYTES = 4 * 1024
#: A plan that is judged is shown whole or not judged: a plan of 2,048 output tokens is about 8 kB, and as
#: much again is for prefixes and shown characters.
MAX_FENCED_PLAN_BYTES = 16 * 1024

_MAX_BYTES = {
    SourceKind.ADVISORY: MAX_FENCED_ADVISORY_BYTES,
    SourceKind.REPOSITORY_SNIPPET: MAX_FENCED_SNIPPET_BYTES,
    SourceKind.SOLVED_EXAMPLE: MAX_FENCED_EXAMPLE_BYTES,
    SourceKind.PRIOR_ATTEMPT_SUMMARY: MAX_FENCED_SUMMARY_BYTES,
    SourceKind.PREVIOUS_ANSWER: MAX_FENCED_ANSWER_BYTES,
    SourceKind.PROOF_FAILURE: MAX_FENCED_PROOF_BYTES,
    SourceKind.PLAN: MAX_FENCED_PLAN_BYTES,
}


class Fenced(Frozen):
    """Untrusted text, made safe to quote. ``text`` has both markers and no line end at its end."""

    text: str
    source_kind: SourceKind
    findings: tuple[str, ...]
    cut: bool


def fence(
    text: str, *, source_kind: SourceKind, nonce: str, secrets: frozenset[str] = frozenset()
) -> Fenced:
    """Quote untrusted text. Same arguments, same result; at most ``source_kind.max_bytes``.

    ``secrets`` are values of this process to remove in addition to the known formats. Raises
    ConfigurationError for a nonce that isn't 32 lower-case hex characters.
    """
    if not _NONCE.fullmatch(nonce):
        raise ConfigurationError(
            f"A fence's nonce is 32 lower-case hex characters, not {nonce!r}.",
            next_step="Give a nonce source that returns `secrets.token_hex(16)`.",
        )
    data = text.encode("utf-8", "backslashreplace").replace(b"\r\n", b"\n")
    findings = scan(data)
    begin = f"<<<UNTRUSTED {nonce} {source_kind}"
    begin += f"; it seems to contain: {', '.join(findings)}>>>\n" if findings else ">>>\n"
    end = f"\n<<<END {nonce}>>>"
    space = source_kind.max_bytes - len(begin) - len(end)
    body, cut = _body(data, space, nonce, secrets)
    return Fenced(text=begin + body + end, source_kind=source_kind, findings=findings, cut=cut)


def _body(data: bytes, space: int, nonce: str, secrets: frozenset[str]) -> tuple[str, bool]:
    """Return the prefixed lines, at most ``space`` bytes, and whether anything is missing."""
    near = space + _MARGIN_BYTES
    if len(data) <= 2 * near:
        text = redact_secrets(data.decode(), secrets)[0].removesuffix("\n")
        if _size(text) <= space:
            return _lines(text, nonce), False
        front = back = text
        total = len(text.encode())
    else:
        # The middle is not kept, so only the two ends are searched for secrets.
        front = redact_secrets(data[:near].decode("utf-8", "ignore"), secrets)[0]
        back = redact_secrets(data[-near:].decode("utf-8", "ignore"), secrets)[0].removesuffix("\n")
        total = len(data)
    return _cut(front, back, total, space, nonce), True


def _cut(front: str, back: str, total: int, space: int, nonce: str) -> str:
    """Return the head of ``front`` and the tail of ``back`` with a marker between them."""
    marker = f"\n{PREFIX}<<<CUT {nonce} {{:,}} bytes removed>>>\n"
    space -= len(marker.format(total))
    head = front[: _fitting(front, space // 4, 1)]
    head = head[: _line_end(head)]
    rest = space - _size(head)
    tail_chars = _fitting(back, rest, -1)
    tail = back[len(back) - tail_chars :]
    tail = tail[len(tail) - _line_end(tail[::-1]) :]
    removed = total - len(head.encode()) - len(tail.encode())
    return _lines(head, nonce) + marker.format(removed) + _lines(tail, nonce)


def _fitting(text: str, space: int, direction: int) -> int:
    """Return how many characters from the front (1) or the back (-1) take at most ``space`` bytes."""
    text = text[:space] if direction > 0 else text[: -space - 1 : -1]
    # The size of a character does not depend on its neighbours: each kind is measured once.
    sizes = {char: _size(char) - len(PREFIX) for char in set(text)}
    totals = accumulate(map(sizes.__getitem__, text), initial=len(PREFIX))
    return max(0, bisect_right(list(totals), space) - 1)


def _line_end(text: str) -> int:
    """Return the length of ``text`` up to its last line end, if little is lost; otherwise its
    whole length."""
    position = text.rfind("\n")
    return position if position >= len(text) * _LINE_END_COST else len(text)


def _size(text: str) -> int:
    """Return the bytes of the text as it will be in the fence."""
    return len(show_hidden(text).encode()) + len(PREFIX) * (text.count("\n") + 1)


def _lines(text: str, nonce: str) -> str:
    shown = re.sub(nonce, _NONCE_STAND_IN, show_hidden(text), flags=re.IGNORECASE)
    return PREFIX + shown.replace("\n", "\n" + PREFIX)


# Detection of text that talks to the model: the fence's header names what was detected; nothing is dropped.
#
# It is advice to a model, not a safeguard: paraphrase defeats any list of patterns, which is why the gates
# don't trust the model. Linear time: one google-re2 set in one pass, measured in tests/campaigns/bench.

#: Up to three words between two key words ("ignore all of the previous instructions"). Short on purpose: a
#: long counted gap multiplies the automaton's states.
_GAP = r"\W+(?:\w+\W+){0,3}"

#: Patterns on the text without hidden and non-ASCII characters; case doesn't matter.
_WORDING = {
    "instruction_override": (
        rf"\b(?:ignore|disregard|forget|override|bypass|skip){_GAP}"
        r"(?:instructions?|rules?|prompts?|guidelines|directions|polic(?:y|ies)|constraints|above)\b"
    ),
    "new_instructions": (
        r"\b(?:new|updated|real|actual|important|urgent)\W+(?:system\W+)?instructions?\W*:"
        r"|\bsystem\W+(?:prompt|override|message)\W*:"
    ),
    "role_imitation": (
        r"(?m:^[\s#>*_\[<|]*(?:system|assistant|human|developer)[\]>|*_]*\s*:)"
        r"|<\|?/?(?:im_start|im_end|system|assistant|user|endoftext|eot_id|start_header_id)\|?>"
        r"|\[/?INST\]|<</?SYS>>"
    ),
    "tool_imitation": r"</?(?:function_calls?|tool_(?:use|call|result)s?|invoke|antml:\w+)\b",
    "persona_change": (
        r"\b(?:you are now|from now on,? you|pretend (?:to be|you)|act as (?:an?|the|if)"
        r"|developer mode|do anything now|jailbreak)\b"
    ),
    "prompt_extraction": (
        rf"\b(?:reveal|print|show|repeat|output|leak|display|summari[sz]e){_GAP}"
        r"(?:system prompt|hidden prompt|initial prompt|your (?:instructions|prompt|rules))\b"
    ),
    "secrecy": (
        r"\b(?:do not|don'?t|never|without)\W+(?:tell|telling|inform|informing|mention|mentioning"
        r"|alert|alerting|notify|notifying)\W+(?:the\W+)?(?:users?|humans?|reviewers?|developers?"
        r"|anyone|any|them|this)\b"
    ),
    "exfiltration": (
        rf"\b(?:send|post|upload|exfiltrate|forward|curl|wget){_GAP}"
        r"(?:secrets?|tokens?|credentials?|passwords?|api.?keys?|environment|env)\b"
    ),
    "fence_imitation": r"<<<\W*(?:end|begin|untrusted)\b|\bend of (?:untrusted|data|fence)\b",
}

#: Patterns on the original text.
_HIDING = {
    "terminal_escape": r"[\x1b\x{9b}]",
    "bidi_control": r"[\x{202a}-\x{202e}\x{2066}-\x{2069}]",
    "zero_width": r"[\x{200b}-\x{200d}\x{2060}\x{feff}\x{ad}]",
    "invisible_tag": r"[\x{e0000}-\x{e0fff}]",
    "styled_letters": r"[\x{ff21}-\x{ff5a}\x{1d400}-\x{1d7ff}]",
}

#: Bytes of controls, and of characters that are not ASCII.
_DROPPED = bytes(code for code in (*range(32), *range(127, 256)) if code not in b"\t\n\r")

#: Up to this many terminal sequences are removed from words; beyond, only their first byte is. A text with
#: more is flagged as ``terminal_escape`` anyway, and removing them all costs 35 ms per MB.
_MAX_SEQUENCES_CUT = 5_000


def scan(data: bytes) -> tuple[str, ...]:
    """Return the names of the patterns found in the whole of a UTF-8 text, in alphabetical order."""
    hidden = _matches("hiding", data)
    names = hidden | _matches("wording", data)
    if hidden:
        names |= _matches("wording", _bare(data))
    return tuple(sorted(names))


def _bare(data: bytes) -> bytes:
    """Return the text as ASCII without controls: words that hidden characters had split are whole again."""
    if b"\x1b" in data and data.count(b"\x1b") <= _MAX_SEQUENCES_CUT:
        data = _sequences().sub(b"", data)
    return data.translate(None, _DROPPED)


def _matches(group: str, data: bytes) -> set[str]:
    names, patterns = _compiled(group)
    return {names[index] for index in patterns.Match(data) or ()}


@cache
def _compiled(group: str) -> tuple[tuple[str, ...], Any]:
    import re2

    rules = _HIDING if group == "hiding" else _WORDING
    options = re2.Options()
    options.case_sensitive = False
    # A set has no slower engine to fall back on: out of memory would look like "nothing found".
    options.max_mem = 64 << 20
    patterns = re2.Set.SearchSet(options)
    for rule in rules.values():
        patterns.Add(rule)
    patterns.Compile()
    return tuple(rules), patterns


@cache
def _sequences() -> Any:
    import re

    return re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")
