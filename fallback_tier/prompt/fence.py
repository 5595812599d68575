"""The one fence that every untrusted byte passes on its way into a prompt.

1. line ends become ``\\n``; what isn't a character (a lone surrogate) becomes its escape;
2. the *whole* text is scanned for attempts to talk to the model (``injection``);
3. secrets are taken out (``redact``);
4. what is over the cap is cut: head 25 %, tail 75 % (a log's end says most), at a line where that
   costs little, else at a character, and a marker says how many bytes are gone;
5. hidden characters are shown by their code point, the nonce is taken out;
6. every line gets the prefix, and the whole stands between two markers that carry the nonce.

So nothing inside can look like the end of the fence: an end marker has no prefix, and a nonce that
its author could not know. This mitigates injection; it doesn't eliminate it. Hence the gates.
"""

import re
from bisect import bisect_right
from enum import StrEnum
from itertools import accumulate

from fallback_audit.frozen import Frozen
from fallback_tier.errors import ConfigurationError
from fallback_tier.limits import MAX_FENCED_SUMMARY_BYTES
from fallback_tier.prompt.characters import show_hidden
from fallback_tier.prompt.injection import scan
from fallback_tier.prompt.redact import redact_secrets

#: In front of every line inside a fence.
PREFIX = "| "

#: Stands where the nonce was found inside a text. Shorter than a nonce: no cap is passed by it.
_NONCE_STAND_IN = "[nonce]"

_NONCE = re.compile(r"[0-9a-f]{32}")

#: Bytes beyond a long text's kept part in which a secret may begin that reaches into it: a private
#: key of 8,192 bits is 6.4 kB in PEM.
_MARGIN_BYTES = 8 * 1024

#: A cut moves to the next line end if that costs less than this part of what is kept there.
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


#: Nine of ten OSV texts are below 1.6 kB; of a long one, what matters comes early and late.
MAX_FENCED_ADVISORY_BYTES = 6 * 1024
#: A snippet has at most context.MAX_SNIPPET_BYTES; the rest is room for prefixes, so that code is
#: seldom cut here (a cut line can't be copied into an edit).
MAX_FENCED_SNIPPET_BYTES = 8 * 1024
#: Four examples then weigh no more than the repository's own code.
MAX_FENCED_EXAMPLE_BYTES = 3 * 1024
#: Failing tests, assertions and frames, each at most at its share of a failure summary.
MAX_FENCED_PROOF_BYTES = 3 * 1024
#: A plan of 2,048 output tokens is about 8 kB; its beginning and end show what was wrong.
MAX_FENCED_ANSWER_BYTES = 4 * 1024
#: What is under judgement is shown whole or not judged: a plan of 2,048 output tokens is about 8 kB,
#: and as much again is room for prefixes and shown characters.
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

    ``secrets`` are values of this process to take out besides the known formats. Raises
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
    """The prefixed lines, at most ``space`` bytes, and whether something is missing."""
    near = space + _MARGIN_BYTES
    if len(data) <= 2 * near:
        text = redact_secrets(data.decode(), secrets)[0].removesuffix("\n")
        if _size(text) <= space:
            return _lines(text, nonce), False
        front = back = text
        total = len(text.encode())
    else:
        # Nothing is kept from the middle: secrets are looked for where they could matter.
        front = redact_secrets(data[:near].decode("utf-8", "ignore"), secrets)[0]
        back = redact_secrets(data[-near:].decode("utf-8", "ignore"), secrets)[0].removesuffix("\n")
        total = len(data)
    return _cut(front, back, total, space, nonce), True


def _cut(front: str, back: str, total: int, space: int, nonce: str) -> str:
    """Head of ``front`` and tail of ``back`` with a marker between them."""
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
    """How many characters from the front (1) or the back (-1) take at most ``space`` bytes."""
    text = text[:space] if direction > 0 else text[: -space - 1 : -1]
    # What a character takes depends on nothing beside it: each sort is measured once.
    sizes = {char: _size(char) - len(PREFIX) for char in set(text)}
    totals = accumulate(map(sizes.__getitem__, text), initial=len(PREFIX))
    return max(0, bisect_right(list(totals), space) - 1)


def _line_end(kept: str) -> int:
    """Characters of ``kept`` up to its last line end, if that loses little; else all of them."""
    place = kept.rfind("\n")
    return place if place >= len(kept) * _LINE_END_COST else len(kept)


def _size(text: str) -> int:
    """Bytes of the text as it will stand in the fence."""
    return len(show_hidden(text).encode()) + len(PREFIX) * (text.count("\n") + 1)


def _lines(text: str, nonce: str) -> str:
    shown = re.sub(nonce, _NONCE_STAND_IN, show_hidden(text), flags=re.IGNORECASE)
    return PREFIX + shown.replace("\n", "\n" + PREFIX)
