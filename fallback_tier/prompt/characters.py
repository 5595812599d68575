"""Characters that a reader doesn't see, or that move visible ones: shown by their code point.

Source: Unicode 15 general categories Cc, Cf, Cs, Co, Zl, Zp, the noncharacters and
Default_Ignorable_Code_Point (UAX #44), and the blank letters used to hide text (Hangul fillers, Braille
blank). ``\\n`` and ``\\t`` are the only controls that are kept.
"""

import re

#: The class, as ranges (inclusive) of code points.
_RANGES = (
    "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u034f\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890-\\u0891"
    "\\u08e2\\u115f-\\u1160\\u17b4-\\u17b5\\u180b-\\u180f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f"
    "\\u2800\\u3164\\ud800-\\uf8ff\\ufdd0-\\ufdef\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb"
    "\\ufffe-\\uffff\\U000110bd\\U000110cd\\U00013430-\\U0001343f\\U0001bca0-\\U0001bca3"
    "\\U0001d173-\\U0001d17a\\U000e0000-\\U000e0fff\\U000f0000-\\U0010ffff"
)
_HIDDEN = re.compile(f"[{_RANGES}]")

#: A terminal's whole control sequence (ECMA-48 §5.4), otherwise a single hidden character.
_HIDDEN_RUN = re.compile(f"\\x1b\\[[0-?]*[ -/]*[@-~]|[{_RANGES}]")

_VISIBLE = bytes((*b"\t\n", *range(32, 127)))


def is_hidden(character: str) -> bool:
    """Return whether this is one of the hidden characters."""
    return _HIDDEN.match(character) is not None


def show_hidden(text: str) -> str:
    """Return the text with hidden characters as ``<U+202E>``; nothing is dropped, and nothing shrinks."""
    return text if _is_plain(text) else _HIDDEN.sub(_code_point, text)


def drop_hidden(text: str) -> str:
    """Return the text without hidden characters and terminal sequences, as a reader would see it."""
    return text if _is_plain(text) else _HIDDEN_RUN.sub("", text)


def _is_plain(text: str) -> bool:
    """Return whether nothing is hidden: ten times as fast as a search of the text, which is mostly
    ASCII."""
    rest = text.encode("utf-8", "surrogatepass").translate(None, _VISIBLE)
    return not rest or _HIDDEN.search(rest.decode("utf-8", "surrogatepass")) is None


def _code_point(match: re.Match[str]) -> str:
    return f"<U+{ord(match[0]):04X}>"
