"""Take secrets out of a text before it leaves the machine or enters the record.

Three nets: the exact values that this process knows, the formats in ``secret_rules``, and the values whose
name says that they are secrets (``named_values``). None is complete: a secret without a format, a name or
an entry in ``known`` is a word like any other.
"""

import json
import re
from binascii import a2b_base64
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple
from urllib.parse import quote

from fallback_tier.prompt.characters import drop_hidden, show_hidden
from fallback_tier.prompt.named_values import VERSION, named_values
from fallback_tier.prompt.secret_rules import RULES, TOKENS, Certainty, Rule

#: What stands in a secret's place.
REDACTED = "[REDACTED]"

#: A known value shorter than this is no secret, and redacting it would shred the text.
MIN_KNOWN_CHARS = 6

#: What stands behind the shell's working folder: ``"$PWD:./bin:$PATH"`` gives no password its value.
_WORKING_FOLDER = re.compile(rb"\$(?:(?:OLD)?PWD|\{(?:OLD)?PWD\})[\"']?:\Z")
_WORKING_FOLDER_BYTES = len("${OLDPWD}':")
_PATHS = re.compile(rb"[\w.@-]*/[\w./@-]*(?::[\w./@-]*)*")
#: Code without quotes: a dotted or called name (``process.env.TOKEN_2``, ``config.token1``) …
_DOTTED_NAME = re.compile(rb"[!&*@]*(?:[A-Za-z_]\w*|[0-9]+)(?:(?:[.?!]+|::)[A-Za-z_]\w*)+[?!]?")
#: … or a plain one (``token_v2``, ``sha256``).
#: Groups that run services, as ``--user=nobody:nogroup`` names them.
_GROUPS = frozenset({b"nogroup", b"nobody", b"www-data", b"daemon"})
#: ``-path``, ``-print``, … of find, without ``-p``.
_RESTS_OF_OPTIONS = frozenset({b"ath", b"rint", b"rint0", b"rintf", b"erm", b"rune"})

_PLAIN_NAME = re.compile(rb"[!&*@]*[A-Za-z_]+\d{0,3}[?!]?|[0-9]+\.\.\.?[0-9]+|/\*.*")
_PLACEHOLDER = re.compile(rb"\$\{|\{[\w.]*\}|\{\{|%s|%\(|<%|\*{3,}|x{6,}|\.{3,}", re.IGNORECASE)
#: What forms and schemas say about a password.
_ABOUT = re.compile(
    rb"(?:new|old|current|your|user|my|the|api|access|auth)?[-_ ]?"
    rb"(?:pass(?:word|wd|phrase)?|pwd|secret|token"
    rb"|key|apikey|jwt|credentials?)s?|required|bearer|basic|digest"
)
_LETTER, _DIGIT, _MARK = (re.compile(c) for c in (rb"[A-Za-z]", rb"[0-9]", rb"[!#%^*?@~+=/\\]"))
#: Paths and plain addresses, often the value of a key such as ``tokenUrl``.
_PATH = re.compile(rb"(?:https?:/)?\.{0,2}/[\w./-]*[\w/]")


#: A run of base64, over several lines where it is broken into such. ``re``, since google-re2 takes ten
#: times as long for each of many; nothing in it is tried twice.
_BASE64 = r"[0-9A-Za-z+/_-]"
_ON = r"[ \t]*+\r?\n[ \t]*+"
_RUN = re.compile(
    rf"(?<!{_BASE64}){_BASE64}{{24,}}+(?:{_ON}{_BASE64}{{24,}}+)*+"
    rf"(?:(?:{_ON}{_BASE64}{{1,23}}+)?={{1,2}})?".encode()
)
#: Text in what base64 says, long enough to name a secret; of random bytes one in 10**7 has so much.
_SAID = re.compile(rb"[\t\n\r -~]{16,}")
#: What base64 says may be base64 again, as a file in a secret of Kubernetes; each layer may be three
#: times as long as the one before, since no run tells where it begins.
_LAYERS = 2
_URL_SAFE = bytes.maketrans(b"-_", b"+/")


#: A run's least length, and what stands for a character of one in a copy that is searched for such runs.
_LEAST_RUN = b"A" * 24
_IN_RUN = bytes(ord("A" if re.match(_BASE64, chr(byte)) else " ") for byte in range(256))


class _CompiledRule(NamedTuple):
    pattern: Any
    lead: re.Pattern[bytes]
    tail_bytes: int
    judge: Certainty


class _Screen(NamedTuple):
    """Rules that follow one another, and one pattern that matches wherever any of them does. Most texts
    have no secret: one search finds that out."""

    pattern: Any
    rules: tuple[Rule, ...]


def redact_secrets(text: str, known: frozenset[str] = frozenset()) -> tuple[str, int]:
    """The text with ``[REDACTED]`` in the place of each secret, and how many were taken out.

    ``known`` are exact values (also found percent-encoded or as a JSON string). Line numbers stay
    as they were. Where hidden characters had split a secret, the text comes back without them.
    """
    redacted, count = _redact(text, known)
    bare = drop_hidden(redacted)
    if bare != redacted:
        again, more = _redact(bare, known)
        if more:
            return again, count + more
    return redacted, count


def excerpt(text: str, limit: int, known: frozenset[str] = frozenset()) -> str:
    """For records and screens: redacted, hidden characters shown, at most ``limit`` characters."""
    safe = show_hidden(redact_secrets(text, known)[0].replace("\r\n", "\n"))
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"


def _redact(text: str, known: frozenset[str], layers: int = _LAYERS) -> tuple[str, int]:
    data = text.encode("utf-8", "surrogatepass")
    count = 0
    for value in _spellings(known):
        found = data.count(value)
        if found:
            data, count = data.replace(value, _stand_in(value)), count + found
    for screen in _screens():
        if screen.pattern.search(data):
            for rule in screen.rules:
                data, found = _replace(_compiled(rule), data)
                count += found
    spans = named_values(data)
    data, count = _without(data, spans), count + len(spans)
    if layers:
        data, found = _replace_encoded(data, known, layers - 1)
        count += found
    return data.decode("utf-8", "surrogatepass"), count


def _spellings(known: frozenset[str]) -> list[bytes]:
    """The known values in the forms they take in URLs and JSON, longest first."""
    values = {
        form
        for value in known
        if len(value) >= MIN_KNOWN_CHARS
        for form in (value, quote(value, safe=""), json.dumps(value)[1:-1])
    }
    encoded = (value.encode("utf-8", "surrogatepass") for value in values)
    return sorted(encoded, key=lambda value: (-len(value), value))


def _replace(rule: _CompiledRule, data: bytes) -> tuple[bytes, int]:
    is_secret = _JUDGES[rule.judge]
    pieces: list[bytes] = []
    end = count = 0
    for match in rule.pattern.finditer(data):
        start, stop = match.span()
        # The group is found in the few bytes of the match: re2 with groups is four times slower.
        lead = rule.lead.match(data, start, stop)
        start, stop = lead.end() if lead else start, stop - rule.tail_bytes
        while rule.tail_bytes and data[stop - 1 : stop] == b"\\":
            stop -= 1
        if rule.judge is Certainty.BARE and (
            data[stop : stop + 1] in (b"(", b"[") or _is_below_working_folder(data, start, stop)
        ):
            continue
        if is_secret(data[start:stop]):
            pieces += (data[end:start], _stand_in(data[start:stop]))
            end, count = stop, count + 1
    pieces.append(data[end:])
    return b"".join(pieces), count


def _is_below_working_folder(data: bytes, start: int, stop: int) -> bool:
    before = data[max(0, start - _WORKING_FOLDER_BYTES) : start]
    return bool(_WORKING_FOLDER.search(before) and _PATHS.fullmatch(data, start, stop))


def _replace_encoded(data: bytes, known: frozenset[str], layers: int) -> tuple[bytes, int]:
    """Without those runs of base64 that say something secret: a token, a key, a file with a password."""
    spans = list(_runs(data))
    runs = [data[start:stop].translate(_URL_SAFE, b" \t\r\n=") for start, stop in spans]
    lines: list[str] = []
    places: list[int] = []  # of the run that says each line
    # A run may begin with what belongs to something else, such as a folder's name.
    for shift in range(4 if runs else 0):
        # What is added says zeros, which are no text: no two runs say something together.
        padded = [run[shift:] + b"A" * (8 - (len(run) - shift) % 4) for run in runs]
        found = list(_SAID.finditer(a2b_base64(b"".join(padded))))
        ends = list(accumulate(len(run) // 4 * 3 for run in padded)) if found else []
        for reported in found:
            more = reported[0].decode("ascii").split("\n")
            lines += more
            places += [bisect_right(ends, reported.start())] * len(more)
    # Redacted together, which leaves as many lines: one by one takes thirty times as long.
    left = _redact("\n".join(lines), known, layers)[0].split("\n") if lines else []
    pairs = zip(places, lines, left, strict=True)
    secret = sorted({place for place, line, kept in pairs if kept != line})
    return _without(data, [spans[place] for place in secret]), len(secret)


def _runs(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield where runs of base64 are. ``re`` alone tries each byte of other text: ten times as long."""
    marked, at = data.translate(_IN_RUN), 0
    while (at := marked.find(_LEAST_RUN, at)) >= 0:
        match = _RUN.match(data, at)
        assert match is not None  # noqa: S101 (24 of its characters, and none before them)
        yield match.span()
        at = match.end()


def _without(data: bytes, spans: Sequence[tuple[int, int]]) -> bytes:
    pieces: list[bytes] = []
    end = 0
    for start, stop in spans:
        pieces += (data[end:start], _stand_in(data[start:stop]))
        end = stop
    return b"".join((*pieces, data[end:]))


def _stand_in(secret: bytes) -> bytes:
    """As many lines as before, so that line numbers still hold."""
    return REDACTED.encode() + b"\n" * secret.count(b"\n")


def _is_new(value: bytes) -> bool:
    return value != REDACTED.encode()


def _is_in_place(value: bytes) -> bool:
    """A value whose place (URL, cookie, option) says enough, unless it stands for another."""
    return _is_new(value) and not _PLACEHOLDER.search(value) and not _ABOUT.fullmatch(value.lower())


def _is_literal(value: bytes) -> bool:
    """A value whose name says what it is, unless it's a version, a path or a plain word."""
    return (
        _is_mixed(value)
        and _is_new(value)
        and not _PLACEHOLDER.search(value)
        and not VERSION.match(value)
        and not _PATH.fullmatch(value)
    )


def _is_bare_literal(value: bytes) -> bool:
    """A value without quotes: as above, and it doesn't read as a name in code."""
    return (
        _is_literal(value)
        and not _DOTTED_NAME.fullmatch(value)
        and not _PLAIN_NAME.fullmatch(value)
    )


def _is_no_group(value: bytes) -> bool:
    return value.rstrip(b"`,;)]") not in _GROUPS and _is_in_place(value)


def _is_no_option(value: bytes) -> bool:
    return value not in _RESTS_OF_OPTIONS and _is_in_place(value)


def _is_basic(value: bytes) -> bool:
    """It says ``name:password``."""
    try:
        reported = a2b_base64(value.translate(_URL_SAFE) + b"==")
    except ValueError:
        return False
    return b":" in reported and reported.isascii() and reported.decode("ascii").isprintable()


def _is_mixed(value: bytes) -> bool:
    """Letters with digits or punctuation, long digits, or long mixed case: not a plain word."""
    if _LETTER.search(value) is None:
        return _DIGIT.search(value) is not None
    if _DIGIT.search(value):
        return True
    mixed_case = value != value.lower() and value != value.upper()
    return (len(value) >= 8 and _MARK.search(value) is not None) or (
        len(value) >= 20 and mixed_case
    )


_JUDGES = {
    Certainty.FORMAT: _is_new,
    Certainty.PLACE: _is_in_place,
    Certainty.LITERAL: _is_literal,
    Certainty.BARE: _is_bare_literal,
    Certainty.USER: _is_no_group,
    Certainty.OPTION: _is_no_option,
    Certainty.BASIC: _is_basic,
}


#: The tokens are apart: in one automaton with others they have so many states that noise takes ten times
#: as long.
_SCREENED = (RULES[:TOKENS], RULES[TOKENS : TOKENS + 1], RULES[TOKENS + 1 :])


@cache
def _screens() -> tuple[_Screen, ...]:
    return tuple(_Screen(_re2("|".join(map(_any_case, each))), each) for each in _SCREENED)


def _any_case(rule: Rule) -> str:
    """A rule's pattern. Only formats distinguish capitals."""
    flags = "" if rule.judge is Certainty.FORMAT else "i"
    return f"(?{flags}:{rule.start or rule.lead}{rule.value}{rule.tail})"


@cache
def _compiled(rule: Rule) -> _CompiledRule:
    flags = 0 if rule.judge is Certainty.FORMAT else re.IGNORECASE
    lead = re.compile(rule.lead.encode(), flags)
    return _CompiledRule(_re2(_any_case(rule)), lead, 1 if rule.tail else 0, rule.judge)


def _re2(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.max_mem = 32 << 20
    return re2.compile(pattern, options=options)
