"""The table of secrets: what each issuer's credential looks like. Our own table, in RE2 syntax.

Issuers document their prefixes for this very purpose (GitHub's "secret scanning patterns", GitLab's
"token prefixes", Slack's "token types" …).
"""

from enum import Enum, auto
from typing import NamedTuple

_ANSI = r"\x1b\[[0-?]*[ -/]*[@-~]"
#: Where a token may begin: not inside a word or a base64 run (a hash may contain "AKIA"),
#: but right after a terminal's colour sequence, which ends in a letter.
_EDGE = rf"{_ANSI}|[^0-9A-Za-z+/_-]"

_TOKENS = (
    r"sk-(?:ant|proj|svcacct|admin|or|lf)-[\w-]{8,}",  # Anthropic, OpenAI, OpenRouter, Langfuse
    r"sk-[0-9A-Za-z]{32,}",  # OpenAI (older), DeepSeek
    r"gh[opusr]_[0-9A-Za-z]{20,}|github_pat_\w{20,}",
    r"gl(?:agent|cbt|dt|feat|ffct|ft|imt|oas|pat|ptt|rt|rtr|soat)-[\w.-]{16,}|GR1348941[\w-]{20,}",
    r"(?:A3T[0-9A-Z]|ABIA|ACCA|AGPA|AIDA|AKIA|AROA|ASIA)[0-9A-Z]{16}",  # AWS
    r"xox[abdeoprs](?:\.xox[bp])?-[0-9A-Za-z-]{10,}|xapp-[0-9A-Za-z-]{10,}",  # Slack
    r"npm_[0-9A-Za-z]{30,}|pypi-AgE[\w-]{16,}|rubygems_[0-9a-f]{32,}|oy2[0-9a-z]{43}|crates_[\w]{20,}",
    r"AIza[\w-]{30,}|ya29\.[\w.-]{20,}|GOCSPX-[\w-]{20,}|1//0[\w-]{30,}",  # Google
    r"(?:sk|rk|pk)_(?:live|test|prod)_[0-9A-Za-z]{8,}|whsec_[0-9A-Za-z+/=]{20,}",  # Stripe
    r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}(?:\.[\w-]*)?",  # JWT (RFC 7519), also unsigned
    r"SG\.[\w-]{16,}\.[\w-]{16,}|key-[0-9a-f]{32}|(?:SK|AC)[0-9a-f]{32}|[0-9a-f]{32}-us[0-9]{1,2}",
    r"do[opr]_v1_[0-9a-f]{40,}|hf_[0-9A-Za-z]{30,}|r8_[0-9A-Za-z]{30,}|gsk_[0-9A-Za-z]{30,}",
    r"shp(?:at|ca|pa|ss)_[0-9A-Fa-f]{32}|sq0[a-z]{3}-[\w-]{20,}|EAAA[\w-]{56,}",
    r"dapi[0-9a-f]{32}|dckr_pat_[\w-]{20,}|dp\.(?:pt|st|ct|sa)\.[\w.]{20,}|hv[bsr]\.[\w-]{20,}",
    r"[0-9]{8,10}:AA[\w-]{30,}|[MNO][0-9A-Za-z]{23,25}\.[\w-]{6}\.[\w-]{27,}",  # Telegram, Discord
    r"lin_api_[0-9A-Za-z]{30,}|ATATT3[\w=-]{20,}|PMAK-[0-9a-f-]{40,}|NRAK-[0-9A-Z]{20,}",
    r"glsa_\w{30,}|sntry[su]_[0-9A-Za-z+/=_]{20,}|ops_eyJ[\w+/=-]{40,}|figd_[\w-]{30,}",
    r"secret_[0-9A-Za-z]{40,}|ntn_[0-9A-Za-z]{40,}|tfp_[\w-]{30,}|[0-9A-Za-z]{14}\.atlasv1\.[\w-]{40,}",
    r"AGE-SECRET-KEY-1[0-9A-Z]{50,}|pul-[0-9a-f]{40}|fo1_[\w-]{40,}|nvapi-[\w-]{40,}|xai-\w{40,}",
    r"AccountKey=[0-9A-Za-z+/=]{40,}|SharedAccessKey=[0-9A-Za-z+/=]{20,}",  # Azure
    r"https://hooks\.slack\.com/[\w/]{20,}|https://discord(?:app)?\.com/api/webhooks/[\w/-]{20,}",
)

#: What may stand between the armour lines: base64, line ends and their escapes, quotes and joins of
#: a literal that spans lines, the headers of an encrypted key. No brackets or underscores, so that
#: code *about* armour lines is not swallowed up to the next one; no two dashes, so that a match
#: never looks past the next armour line (linear time).
_ARMOURED = rf"(?:[0-9A-Za-z+/=\s\\\"'`:,;|>.]|-[0-9A-Za-z\s]|[^\x00-\x7f]|{_ANSI})"
_JOIN = r"[\s\\rn\"'+|>]*"
_BASE64_LINES = rf"[0-9A-Za-z+/=]{{16,}}(?:{_JOIN}[0-9A-Za-z+/=]{{16,}})*"
_BEGIN = r"-----BEGIN [0-9A-Z ]*PRIVATE KEY(?: BLOCK)?-----"
_END = r"-----END [0-9A-Z ]*PRIVATE KEY(?: BLOCK)?-----"
_KEY_BLOCK = (
    rf"{_BEGIN}{_ARMOURED}*?{_END}"
    # Cut off at its end, or at its beginning.
    rf"|{_BEGIN}(?:{_JOIN}(?:Proc-Type|DEK-Info|Version|Comment): [^\n]*)*{_JOIN}{_BASE64_LINES}"
    rf"|{_BASE64_LINES}{_JOIN}[0-9A-Za-z+/=]*{_JOIN}{_END}"
    r"|Private-Lines: [0-9]+\s+[0-9A-Za-z+/=\s]+"  # PuTTY
)

#: Words that name a secret, as the end of a key or variable name.
_NAME = (
    r"(?:pass(?:word|wd|phrase|code|\b)|pwd|secrets?|tokens?|credentials?|cookie"
    r"|(?:api|access|auth|account|client|encryption|license|master|private|secret|session|shared"
    r"|signing|ssh|storage|webhook)[_.-]?(?:key|secret|token)|apikey|_auth\b|bearer|dsn)[\w-]*"
)


class Judge(Enum):
    """How much the value itself must look like a secret before it is taken out."""

    #: The format alone is proof.
    FORMAT = auto()
    #: Its place says what it is; a placeholder or the place's own name ("password") is none.
    PLACE = auto()
    #: Its name says what it is; a version, a path or a plain word is none either.
    LITERAL = auto()
    #: It may be code: also no name of a variable, no call, no index.
    BARE = auto()


class Rule(NamedTuple):
    """``lead`` + ``value`` + ``tail``; only the value is taken out.

    ``start`` replaces the lead where the search must know more: the beginning of the text.
    """

    judge: Judge
    lead: str
    value: str
    tail: str = ""
    start: str = ""


RULES = (
    Rule(Judge.FORMAT, "", f"(?:{_KEY_BLOCK})"),
    # Several where one stands right behind another. The lead is matched over bytes: an edge may be
    # several.
    Rule(Judge.FORMAT, f"(?:{_EDGE}+)?", f"(?:{'|'.join(_TOKENS)})+", start=rf"(?:\A|{_EDGE})"),
    # Credentials in a URL (RFC 3986 §3.2.1).
    Rule(Judge.PLACE, r"[a-z][0-9a-z+.-]*://[^\s/@:\"'`<>]*:", r"[^\s/\"'`<>\[\]\\]{3,}", "@"),
    # Cookies (RFC 6265) and HTTP credentials (RFC 9110 §11), as header lines or arguments.
    Rule(Judge.PLACE, r"\b(?:set-)?cookie[\"']?:[ \t]*[\"']?[\w.-]+=", r"[^\r\n\"']{6,}"),
    Rule(
        Judge.BARE,
        r"(?:authorization|x-api-key|api-key|x-auth-token|x-access-token|private-token|x-vault-token"
        r"|x-csrf-token|x-amz-security-token)[\"']?\s*[:=,]\s*[\"'`]?"
        r"(?:(?:bearer|basic|token|digest|apikey|negotiate)\s+)?",
        r"[0-9a-z+/=._~:!@#%^*-]{8,}",
    ),
    Rule(Judge.BARE, r"\b(?:bearer|basic)\s+", r"[0-9a-z+/=._~-]{12,}"),
    # ``curl -u name:secret``, ``--password secret``.
    Rule(
        Judge.PLACE,
        r"(?:\s-u\s+[\"']?[\w.@-]+:|\s--?(?:password|passwd|token|secret|api-?key)\s+[\"']?)",
        r"[^\s\"'<>$/-][^\s\"'<>$]{5,}",
    ),
    # ``name = "value"`` in any language: what stands in quotes is a literal. A password may be a
    # plain word.
    Rule(
        Judge.PLACE,
        r"\b\w*(?:password|passwd|passphrase|pwd)[\"'\]]*\s*(?::=|=>|[:=])\s*[bfru]?[\"'`]",
        r"[^\s\"'`]{8,}",
        r"[\"'`]",
    ),
    Rule(
        Judge.LITERAL,
        rf"{_NAME}[\"'\]]*\s*(?::=|=>|[:=,])\s*[bfru]?[\"'`]",
        r"[^\s\"'`]{6,}",
        r"[\"'`]",
    ),
    Rule(Judge.BARE, rf"{_NAME}[\"']?[ \t]*[:=][ \t]*", r"[^\s\"'`,;(){}\[\]<>$&|]{6,}"),
)
