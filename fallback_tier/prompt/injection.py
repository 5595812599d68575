"""Does a text talk to the model? Findings are named in the fence's header; nothing is dropped.

Advice to a model, not a safeguard: paraphrase defeats any list of patterns, which is why the gates
don't trust the model. Linear time: one google-re2 set in one pass, measured in tests/campaigns/bench.
"""

from functools import cache
from typing import Any

#: Up to three words between two key words ("ignore all of the previous instructions"). Short on
#: purpose: a long counted gap multiplies the automaton's states.
_GAP = r"\W+(?:\w+\W+){0,3}"

#: Patterns over text in which hidden characters and non-ASCII were dropped; case doesn't matter.
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

#: Patterns over the text as it came.
_HIDING = {
    "terminal_escape": r"[\x1b\x{9b}]",
    "bidi_control": r"[\x{202a}-\x{202e}\x{2066}-\x{2069}]",
    "zero_width": r"[\x{200b}-\x{200d}\x{2060}\x{feff}\x{ad}]",
    "invisible_tag": r"[\x{e0000}-\x{e0fff}]",
    "styled_letters": r"[\x{ff21}-\x{ff5a}\x{1d400}-\x{1d7ff}]",
}

#: Bytes of controls, and of whatever is not ASCII.
_DROPPED = bytes(code for code in (*range(32), *range(127, 256)) if code not in b"\t\n\r")

#: Up to this many terminal sequences are cut out of words; beyond, only their first byte is.
#: A text with more is flagged as ``terminal_escape`` anyway, and cutting them all costs 35 ms a MB.
_MAX_SEQUENCES_CUT = 5_000


def scan(data: bytes) -> tuple[str, ...]:
    """Names of what was found in the whole of a UTF-8 text, in alphabetical order."""
    hidden = _matches("hiding", data)
    found = hidden | _matches("wording", data)
    if hidden:
        found |= _matches("wording", _bare(data))
    return tuple(sorted(found))


def _bare(data: bytes) -> bytes:
    """ASCII only, without controls: words that hidden characters had split are whole again."""
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
    # A set has no slower engine to fall back on: out of memory would read as "nothing found".
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
