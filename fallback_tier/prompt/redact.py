"""Removal of secrets from a text before it leaves the machine or enters the audit trail.

Three methods: the exact values that this process knows, the formats in the table below, and the values
whose name says that they are secrets (``named_values``). None is complete: a secret without a format, a
name or an entry in ``known`` is not recognised.
"""

import json
import re
from binascii import a2b_base64
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from functools import cache
from itertools import accumulate
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from fallback_tier.prompt.characters import drop_hidden, show_hidden
from fallback_tier.prompt.named_values import VERSION, named_values

_ANSI = r"\x1b\[[0-?]*[ -/]*[@-~]"
#: Escapes of a character in strings and URLs: one may end in a letter.
_ESCAPE = r"\\[abefnrtv]|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|%[0-9a-fA-F]{2}"
#: Where a token may begin: not inside a word or a base64 run (a hash may contain "AKIA"), but right after a
#: terminal's colour sequence, which ends in a letter.
_EDGE = rf"(?:{_ANSI}|{_ESCAPE}|[^0-9A-Za-z+/_-])"

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
    r"LTAI[0-9A-Za-z]{16,}|AKCp[0-9A-Za-z]{60,}|cmVmd[0-9A-Za-z]{59}|CLOJARS_[0-9a-z]{60}",
    r"A3-[0-9A-Z]{6}(?:-[0-9A-Z]{5,11}){4,}|[\w~.]{3}[0-9]Q~[\w~.-]{31,}|pat[0-9A-Za-z]{14}\.[0-9a-f]{64}",
    r"dt0[a-z][0-9]{2}\.[0-9A-Z]{24}\.[0-9A-Z]{60,}|pscale_(?:tkn|oauth|pw)_[\w=.-]{30,}|sgp_[0-9a-f_]{40,}",
    r"tskey-[a-z]+-[\w-]{20,}|pplx-[0-9A-Za-z]{40,}|phx_[0-9A-Za-z]{40,}|shippo_(?:live|test)_[0-9a-f]{40}",
    # The first line of a private key without its armour: PKCS #1 and #8, SEC 1, OpenSSH.
    r"MII[\w+/]{3}IBA(?:AKC|DANBgkqhkiG9w0BAQ)[\w+/=]{40,}|MHcCAQEEI[\w+/=]{40,}",
    r"MI[\w+/]{1,3}AgEAMBMGByqGSM49[\w+/=]{40,}|MC4CAQAwBQYDK2VwBCIEI[\w+/=]{30,}",
    r"b3BlbnNzaC1rZXktdjE[\w+/=]{40,}",
    r"https://hooks\.slack\.com/[\w/]{20,}|https://discord(?:app)?\.com/api/webhooks/[\w/-]{20,}",
)

#: Password hashes, in the forms of crypt(5), of frameworks, of LDAP and of databases: they can be guessed
#: offline.
_CRYPT = r"[./0-9A-Za-z\\]"
_HASHES = (
    rf"\${{1,2}}2[abxy]?\${{1,2}}[0-9]{{2}}\${{1,2}}{_CRYPT}{{22,}}",
    rf"\$(?:1|apr1)\${_CRYPT}{{1,8}}\${_CRYPT}{{20,}}",
    rf"\$(?:5|6|md5|sha1)\$(?:rounds=[0-9]+\$)?{_CRYPT}{{1,24}}\$[./0-9A-Za-z$\\]{{20,}}",
    r"\$(?:argon2(?:id|i|d)|scrypt|bcrypt-sha256|pbkdf2(?:-sha[0-9]+)?)\$[\w$=,./+\\-]{20,}",
    r"\$(?:7|8|9|y|gy)\$[\w$./\\-]{20,}|\$[PHS]\$[./0-9A-Za-z]{28,}",
    r"pbkdf2_sha[0-9]+\$[0-9]+\$[^\s$\"']+\$[\w+/=]{20,}|scrypt\$[0-9]+\$[\w$+/=.-]{20,}",
    r"(?:pbkdf2:sha[0-9]+(?::[0-9]+)?|scrypt(?::[0-9]+){3}|sha(?:1|256|512))\$[\w./-]+\$[0-9a-f]{32,}",
    r"\{(?:S?SHA(?:256|512)?|S?MD5|CRYPT|PBKDF2[\w-]*|ARGON2)\}[\w+/=.$-]{16,}",
    r"SCRAM-SHA-[0-9]+\$[0-9]+:[\w+/=]+\$[\w+/=]+:[\w+/=]+|md5[0-9a-f]{32}|\*[0-9A-F]{40}",
    r"[0-9a-fA-F]{32}:[0-9a-fA-F]{32}:::",
)

#: Allowed between the armour lines: base64, line ends and their escapes, quotes and joins of a literal that
#: spans lines, the headers of an encrypted key. No brackets or underscores, so that code *about* armour
#: lines does not match up to the next one; no two dashes, so that a match never looks past the next armour
#: line (linear time).
_ARMOURED = rf"(?:[0-9A-Za-z+/=\s\\\"'`:,;|>.]|-[0-9A-Za-z\s]|[^\x00-\x7f]|{_ANSI})"
_JOIN = r"[\s\\rn\"'+|>]*"
_BASE64_LINES = rf"[0-9A-Za-z+/=]{{16,}}(?:{_JOIN}[0-9A-Za-z+/=]{{16,}})*"
_BEGIN = r"----[- ]BEGIN [0-9A-Z ]*PRIVATE KEY(?: BLOCK)?[- ]----"
_END = r"----[- ]END [0-9A-Z ]*PRIVATE KEY(?: BLOCK)?[- ]----"
#: Lines of a key, each after any prefix: a comment's mark, a log's time, a number.
_KEY_LINES = r"(?:[^\n]*[0-9A-Za-z+/]{40,}[^\n]*\n?)+"
_KEY_HEADERS = (
    r"(?:[^\n]*(?:Proc-Type|DEK-Info|Version|Comment|Subject):[^\n]*\n|[^0-9A-Za-z\n]*\n){0,20}"
)
_KEY_BLOCK = (
    rf"{_BEGIN}{_ARMOURED}*?{_END}"
    # With a prefix: up to two shorter lines may precede the end.
    rf"|{_BEGIN}[^\n]*\n{_KEY_HEADERS}{_KEY_LINES}(?:(?:[^\n]*\n){{0,2}}[^\n]*{_END})?"
    # Without its end, or without its beginning.
    rf"|{_BEGIN}(?:{_JOIN}(?:Proc-Type|DEK-Info|Version|Comment): [^\n]*)*{_JOIN}{_BASE64_LINES}"
    rf"|{_BASE64_LINES}{_JOIN}[0-9A-Za-z+/=]*{_JOIN}{_END}"
    r"|Private-Lines: [0-9]+\s+[0-9A-Za-z+/=\s]+"  # PuTTY
    rf"|Private-Lines: [0-9]+[^\n]*\n{_KEY_LINES}"
)

#: A separate rule: it may look far ahead without a match once, but not again after each shorter match.
_KEY_END = rf"{_KEY_LINES}(?:[^\n]*\n){{0,2}}[^\n]*{_END}"

#: Words that name a secret, as the end of a key or variable name.
_NAME = (
    r"(?:pass(?:word|wd|phrase|code|\b)|pwd|secrets?|tokens?|credentials?|cookie"
    r"|(?:api|access|auth|account|client|encryption|license|master|private|secret|session|shared"
    r"|signing|ssh|storage|webhook)[_.-]?(?:key|secret|token)|apikey|_auth\b|bearer|dsn)[\w-]*"
)


#: A quote, also inside strings inside strings (JSON in JSON), and what closes a name.
_QUOTE = r"\\*[\"'`]"
_CLOSED = r"[\\\"'\]]*"
#: Other spellings of quotes: in JSON made for HTML, and in HTML.
_WRITTEN_QUOTE = r"(?:\\+u002[27]|&(?:quot|#3[49]);)"
#: White space, also inside a string.
_SPACE = r"(?:\s|\\+[nrt])+"
_PLAIN = r"[^\s\\]+"

#: Commands with an option that takes the password: as the next word, or in the same word.
_OTHER_WORD = (
    r"(?:(?:docker|podman|buildah|skopeo|helm[ \t]+registry|oras|az)[ \t]+login|mongo(?:sh|dump|restore)?)"
    r"\b[^\n|;&]{0,200}?\s(?-i:-p)[ \t]+"
    r"|redis-cli\b[^\n|;&]{0,200}?\s(?-i:-a)[ \t]+"
    r"|ldap(?:search|add|modify|delete|passwd|whoami)\b[^\n|;&]{0,200}?\s(?-i:-w)[ \t]+"
    r"|sqlcmd\b[^\n|;&]{0,200}?\s(?-i:-P)[ \t]+"
)
_SAME_WORD = (
    r"(?:mysql(?:dump|admin|import|check|show|pump)?|mariadb(?:-dump|-admin)?|7za?)\b[^\n|;&]{0,200}?\s(?-i:-p)"
    r"|sshpass\b[^\n|;&]{0,200}?\s(?-i:-p)[ \t]*"
    r"|smbclient\b[^\n|;&]{0,200}?\s(?-i:-U)[ \t]*[\"']?[\w.@\\-]+%"
    r"|openssl\b[^\n|;&]{0,200}?\s-pass(?:in|out)?[ \t]+[\"']?pass:"
)
#: The value of a separate option.
_ARGUMENT = r"[^\s\"'<>$/-][^\s\"'<>$]{5,}"
#: One word of a shell that is not a variable.
_WORD = r"(?:'[^'\n]{3,}'|\"[^\"$\n][^\"\n]{2,}\"|[^\s\"'<>$|;&`\\-][^\s\"'<>$|;&`\\]{2,})"


_OPTION = (
    r"(?:(?:\A|[\s\"'`])--?[\w.-]*(?:password|passwd|passphrase|token|secret|api-?key)"
    r"|(?:\A|\s)--(?:from-literal|set(?:-string)?|build-arg|env)[= ]"
    r"[\w.-]*(?:password|passwd|token|secret|key))"
)
_QUERY = r"[?&](?:[\w-]*(?:password|passwd|pwd|secret|api[_-]?key|token|signature|sig))"
_NEXT_TO_USER = (
    r"\b(?:user(?: ?id|name)?|uid|host|dbname|server|port)"
    r"[ \t]*=[ \t]*[^;,\s\"'=]{1,100}[ \t]+"
    r"(?:password|pwd)[ \t]*"
)
_SETTING = (
    r"\$\{[\w.-]*(?:password|passwd|secret|token|api[_-]?key)[\w.-]*:[=-]?"
    r"|(?:\A|\n)[ \t]*(?:requirepass|masterauth)[ \t]+"
    r"|(?:\A|[:/\n])_(?:password|authToken|auth)[ \t]*=[ \t]*"
    # The default of a variable with another name, and a bare value after an anchor or a tag of YAML.
    r"|(?:password|passwd|secret|token|api[_-]?key)[\w.-]{0,60}[\"']?[ \t]*[=:][ \t]*[\"']?"
    r"(?:\$\{[\w.-]{1,80}:?[=-]|(?:&[\w-]{1,60}[ \t]+|!![a-z]{1,20}[ \t]+|!vault[ \t]+){1,3})"
    r"|jdbc:oracle:[a-z]{1,10}:[^/\s@\"']{1,80}/"
)
#: A call, up to the quote of the argument that is a secret.
_CALLS = (
    rf"(?:jwt|jsonwebtoken)\.(?:sign|verify|encode|decode)\([^()\"'\n]{{1,80}},\s*"
    rf"|(?:log_?in|authenticate|sign_?in)\(\s*{_QUOTE}[^\"'\n]{{1,80}}{_QUOTE}\s*,\s*"
    rf"|createHmac\(\s*{_QUOTE}[\w-]+{_QUOTE}\s*,\s*|hmac\.new\(\s*|cookieParser\(\s*|Fernet\(\s*"
    r"|(?:mysqli(?:_connect)?|PDO|getConnection)\((?:\s*[^,()\n]{1,200},){2}\s*"
)


# The table of secrets, in RE2 syntax: what each issuer's credentials look like. Issuers document their
# prefixes for this purpose (GitHub's "secret scanning patterns", GitLab's "token prefixes", Slack's "token
# types" …).


class Certainty(Enum):
    """How much the value itself must look like a secret to be removed."""

    #: The format alone is proof.
    FORMAT = auto()
    #: Its position makes it a secret, unless it is a placeholder or the position's own name ("password").
    PLACE = auto()
    #: Its name makes it a secret, unless it is also a version, a path or a plain word.
    LITERAL = auto()
    #: It may be code: as LITERAL, and not a variable's name, a call or an index.
    BARE = auto()
    #: As PLACE, and not a common system group that a program is to run as.
    USER = auto()
    #: As PLACE, and not the rest of another program's option: ``find -name mysql -path``.
    OPTION = auto()
    #: base64 of ``name:password`` (RFC 7617).
    BASIC = auto()


class Rule(NamedTuple):
    """A pattern ``lead`` + ``value`` + ``tail``. Only the value is removed, not backslashes before the
    tail.

    ``start`` replaces the lead in a search that must see the text's beginning.
    """

    judge: Certainty
    lead: str
    value: str
    tail: str = ""
    start: str = ""


RULES = (
    Rule(Certainty.FORMAT, "", f"(?:{_KEY_BLOCK})"),
    Rule(Certainty.FORMAT, "", f"(?:{_KEY_END})"),
    # Several if one directly follows another. The lead is matched over bytes: an edge may be several.
    Rule(
        Certainty.FORMAT,
        f"{_EDGE}*",
        f"(?:{'|'.join((*_TOKENS, *_HASHES))})+",
        start=rf"(?:\A|{_EDGE})",
    ),
    # A line of shadow(5) with a hash of the oldest form, to the end of its ages.
    Rule(
        Certainty.FORMAT,
        r"(?:\A|\n)[a-z_][\w.-]*:",
        r"[!*]{0,2}[./0-9A-Za-z]{13}:[0-9]{3,6}:[0-9]*:[0-9]*:[0-9]*",
    ),
    # Credentials in a URL (RFC 3986 §3.2.1): a token is the name of a user with a meaningless password.
    Rule(
        Certainty.PLACE,
        r"[a-z][0-9a-z+.-]*://",
        r"[^\s/@:\"'`<>\[\]\\]{3,}:(?:x-oauth-basic|x-oauth|oauth|api_token)?",
        "@",
    ),
    Rule(Certainty.LITERAL, r"[a-z][0-9a-z+.-]*://", r"[0-9a-z_-]{16,}", "@"),
    Rule(Certainty.PLACE, r"[a-z][0-9a-z+.-]*://[^\s/@:\"'`<>]*:", r"[^\s/\"'`<>\[\]\\]{3,}", "@"),
    # Cookies (RFC 6265) and HTTP credentials (RFC 9110 §11), as header lines or arguments.
    Rule(
        Certainty.PLACE,
        rf"\b(?:set-)?cookie(?:{_QUOTE})?:[ \t]*(?:{_QUOTE})?[\w.-]+=",
        r"[^\r\n\"']{6,}",
    ),
    Rule(
        Certainty.BARE,
        r"(?:authorization|x-api-key|api-key|x-auth-token|x-access-token|private-token|x-vault-token"
        rf"|x-csrf-token|x-amz-security-token)(?:{_QUOTE})?\s*[:=]\s*(?:{_QUOTE})?"
        r"(?:(?:bearer|basic|token|digest|apikey|negotiate)\s+)?",
        r"[0-9a-z+/=._~:!@#%^*-]{8,}",
    ),
    Rule(Certainty.BARE, r"\b(?:bearer|basic)\s+", r"[0-9a-z+/=._~-]{12,}"),
    # Docker's and npm's configuration: whole HTTP credentials under a short name.
    Rule(
        Certainty.BASIC,
        rf"\b_?auth{_CLOSED}\s*[:=]\s*(?:{_QUOTE})?",
        r"[0-9a-z+/_-]{8,}={0,2}",
    ),
    # ``curl -u name:secret``, ``--password secret``.
    Rule(Certainty.USER, r"\s(?:-u|--(?:proxy-)?user)[ \t=]+[\"']?[\w.@-]+:", _ARGUMENT),
    Rule(
        Certainty.PLACE,
        r"\s--?(?:password|passwd|passphrase|token|secret|api-?key|storepass|keypass)\s+[\"']?",
        _ARGUMENT,
    ),
    Rule(Certainty.OPTION, rf"\b(?:{_OTHER_WORD}|{_SAME_WORD})", _WORD),
    # In quotes: an option's value, a password of a connection, of a user in SQL, an argument of a
    # well-known call, a header.
    Rule(
        Certainty.PLACE,
        rf"(?:(?:{_OPTION}[= ][ \t]*|{_NEXT_TO_USER}=[ \t]*|\b(?:{_CALLS})b?"
        r"|\bidentified\s+(?:with\s+\S+\s+)?(?:by|as)\s+(?:password\s+)?|\bpassword\s+for\s+\S+\s*=\s*)"
        rf"{_QUOTE}|{_QUOTE}(?:x-[\w-]*(?:token|secret|key|password)|api-?key|private-token):[ \t]+)",
        r"[^\"'\n$\\][^\"'\n]{2,}",
        r"[\"']",
    ),
    Rule(Certainty.PLACE, r";[ \t]*(?:password|pwd)=", r"[^;\"'\n<>{}()$=]{3,}"),
    # Without quotes: options, queries of a URL, connection strings, settings of a server and of npm.
    Rule(
        Certainty.PLACE,
        rf"(?:{_OPTION}=|{_QUERY}=|{_NEXT_TO_USER}=[ \t]*|{_SETTING})[\"']?",
        r"[^\s\"'`<>$&|;(){}#,=\\]{3,}",
    ),
    Rule(
        Certainty.PLACE,
        r"\bauthorization[\"']?\s*[:=]\s*[\"']?(?:bearer|basic|token|digest)[ \t]+",
        r"[0-9a-z+/=._~!@#%^*-]{3,}",
    ),
    # .netrc, on one line or several; without a login before it the password has to look like one.
    Rule(
        Certainty.PLACE,
        rf"(?:\b(?:machine{_SPACE}{_PLAIN}|default){_SPACE}|(?:\A|\n)[ \t]*)login{_SPACE}{_PLAIN}{_SPACE}"
        rf"(?:account{_SPACE}{_PLAIN}{_SPACE})?password{_SPACE}",
        r"[^\s\\\"']{3,}",
    ),
    Rule(
        Certainty.LITERAL,
        rf"\bmachine{_SPACE}{_PLAIN}{_SPACE}password{_SPACE}",
        r"[^\s\\\"']{6,}",
    ),
    Rule(
        Certainty.LITERAL,
        rf"{_NAME}{_WRITTEN_QUOTE}\s*[:=]\s*{_WRITTEN_QUOTE}",
        r"[^\s\"'&\\]{6,}",
    ),
    Rule(
        Certainty.BARE,
        rf"{_NAME}[\"']?[ \t]*[:=][ \t]*",
        r"[^\s\"'`,;(){}\[\]<>$&|:][^\s\"'`,;(){}\[\]<>$&|]{5,}",
    ),
)

#: The index of the rule with the issuers' tokens.
TOKENS = 2


#: The replacement of a secret.
REDACTED = "[REDACTED]"

#: A known value shorter than this is not treated as a secret: redacting it would shred the text.
MIN_KNOWN_CHARS = 6

#: The shell's working folder: in ``"$PWD:./bin:$PATH"`` what follows it is not a password.
_WORKING_FOLDER = re.compile(rb"\$(?:(?:OLD)?PWD|\{(?:OLD)?PWD\})[\"']?:\Z")
_WORKING_FOLDER_BYTES = len("${OLDPWD}':")
_PATHS = re.compile(rb"[\w.@-]*/[\w./@-]*(?::[\w./@-]*)*")
#: Code without quotes: a dotted or called name (``process.env.TOKEN_2``, ``config.token1``).
_DOTTED_NAME = re.compile(rb"[!&*@]*(?:[A-Za-z_]\w*|[0-9]+)(?:(?:[.?!]+|::)[A-Za-z_]\w*)+[?!]?")
#: Groups that run services, as ``--user=nobody:nogroup`` names them.
_GROUPS = frozenset({b"nogroup", b"nobody", b"www-data", b"daemon"})
#: Options of find without ``-p``: ``-path``, ``-print``, …
_RESTS_OF_OPTIONS = frozenset({b"ath", b"rint", b"rint0", b"rintf", b"erm", b"rune"})

#: Code without quotes: a plain name (``token_v2``, ``sha256``).
_PLAIN_NAME = re.compile(rb"[!&*@]*[A-Za-z_]+\d{0,3}[?!]?|[0-9]+\.\.\.?[0-9]+|/\*.*")
_PLACEHOLDER = re.compile(rb"\$\{|\{[\w.]*\}|\{\{|%s|%\(|<%|\*{3,}|x{6,}|\.{3,}", re.IGNORECASE)
#: Words of forms and schemas about a password.
_ABOUT = re.compile(
    rb"(?:new|old|current|your|user|my|the|api|access|auth)?[-_ ]?"
    rb"(?:pass(?:word|wd|phrase)?|pwd|secret|token"
    rb"|key|apikey|jwt|credentials?)s?|required|bearer|basic|digest"
)
_LETTER, _DIGIT, _MARK = (re.compile(c) for c in (rb"[A-Za-z]", rb"[0-9]", rb"[!#%^*?@~+=/\\]"))
#: Paths and plain addresses, often the value of a key such as ``tokenUrl``.
_PATH = re.compile(rb"(?:https?:/)?\.{0,2}/[\w./-]*[\w/]")


#: A run of base64, possibly broken into lines. Uses ``re``, because google-re2 takes ten times as long for
#: each of many; no part of it is tried twice.
_BASE64 = r"[0-9A-Za-z+/_-]"
_ON = r"[ \t]*+\r?\n[ \t]*+"
_RUN = re.compile(
    rf"(?<!{_BASE64}){_BASE64}{{24,}}+(?:{_ON}{_BASE64}{{24,}}+)*+"
    rf"(?:(?:{_ON}{_BASE64}{{1,23}}+)?={{1,2}})?".encode()
)
#: Text in decoded base64, long enough to name a secret; of random bytes one in 10**7 has so much.
_SAID = re.compile(rb"[\t\n\r -~]{16,}")
#: Decoded base64 may be base64 again, such as a file in a secret of Kubernetes. Each layer may be three
#: times as long as the one before, because no run shows where it begins.
_LAYERS = 2
_URL_SAFE = bytes.maketrans(b"-_", b"+/")


#: The least length of a run, and a translation table that marks the characters of runs by "A".
_LEAST_RUN = b"A" * 24
_IN_RUN = bytes(ord("A" if re.match(_BASE64, chr(byte)) else " ") for byte in range(256))


class _CompiledRule(NamedTuple):
    pattern: Any
    lead: re.Pattern[bytes]
    tail_bytes: int
    judge: Certainty


def redact_secrets(text: str, known: frozenset[str] = frozenset()) -> tuple[str, int]:
    """Replace each secret by ``[REDACTED]``, and return the text and the number of secrets.

    ``known``: exact values (also percent-encoded or as JSON). Line numbers stay. If hidden characters had
    split a secret, the text is returned without them.
    """
    redacted, count = _redact(text, known)
    bare = drop_hidden(redacted)
    if bare != redacted:
        again, more = _redact(bare, known)
        if more:
            return again, count + more
    return redacted, count


def excerpt(text: str, limit: int, known: frozenset[str] = frozenset()) -> str:
    """Return text for records and screens: redacted, hidden characters shown, at most ``limit`` long."""
    safe = show_hidden(redact_secrets(text, known)[0].replace("\r\n", "\n"))
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"


def _redact(text: str, known: frozenset[str], layers: int = _LAYERS) -> tuple[str, int]:
    data = text.encode("utf-8", "surrogatepass")
    count = 0
    for value in _spellings(known):
        replaced = data.count(value)
        if replaced:
            data, count = data.replace(value, _stand_in(value)), count + replaced
    for screen, rules in _screens():
        if screen.search(data):
            for rule in rules:
                data, replaced = _replace(_compiled(rule), data)
                count += replaced
    spans = named_values(data)
    data, count = _without(data, spans), count + len(spans)
    if layers:
        data, replaced = _replace_encoded(data, known, layers - 1)
        count += replaced
    return data.decode("utf-8", "surrogatepass"), count


def _spellings(known: frozenset[str]) -> list[bytes]:
    """Return the known values in the forms they take in URLs and JSON, longest first."""
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
        # The lead is matched in the few bytes of the match: re2 with groups is four times slower.
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
    preceding = data[max(0, start - _WORKING_FOLDER_BYTES) : start]
    return bool(_WORKING_FOLDER.search(preceding) and _PATHS.fullmatch(data, start, stop))


def _replace_encoded(data: bytes, known: frozenset[str], layers: int) -> tuple[bytes, int]:
    """Redact runs of base64 that decode to something secret: a token, a key, a file with a password."""
    spans = list(_runs(data))
    runs = [data[start:stop].translate(_URL_SAFE, b" \t\r\n=") for start, stop in spans]
    lines: list[str] = []
    run_indexes: list[int] = []  # for each line, the index of the run that it is decoded from
    # A run may begin with characters that belong to something else, such as a folder's name.
    for shift in range(4 if runs else 0):
        # The padding decodes to zeros, which are not text, so no text spans two runs.
        padded = [run[shift:] + b"A" * (8 - (len(run) - shift) % 4) for run in runs]
        texts = list(_SAID.finditer(a2b_base64(b"".join(padded))))
        ends = list(accumulate(len(run) // 4 * 3 for run in padded)) if texts else []
        for match in texts:
            text_lines = match[0].decode("ascii").split("\n")
            lines += text_lines
            run_indexes += [bisect_right(ends, match.start())] * len(text_lines)
    # Redacted together, which keeps the number of lines: one by one takes thirty times as long.
    redacted_lines = _redact("\n".join(lines), known, layers)[0].split("\n") if lines else []
    pairs = zip(run_indexes, lines, redacted_lines, strict=True)
    secret_indexes = sorted(
        {index for index, line, redacted_line in pairs if redacted_line != line}
    )
    return _without(data, [spans[index] for index in secret_indexes]), len(secret_indexes)


def _runs(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the spans of base64 runs. ``re`` alone would try each byte of other text: ten times as long."""
    marked, position = data.translate(_IN_RUN), 0
    while (position := marked.find(_LEAST_RUN, position)) >= 0:
        match = _RUN.match(data, position)
        assert match is not None  # noqa: S101 (24 of its characters, and none before them)
        yield match.span()
        position = match.end()


def _without(data: bytes, spans: Sequence[tuple[int, int]]) -> bytes:
    pieces: list[bytes] = []
    end = 0
    for start, stop in spans:
        pieces += (data[end:start], _stand_in(data[start:stop]))
        end = stop
    return b"".join((*pieces, data[end:]))


def _stand_in(secret: bytes) -> bytes:
    """Return a replacement with as many lines as the secret, so that line numbers stay the same."""
    return REDACTED.encode() + b"\n" * secret.count(b"\n")


def _is_new(value: bytes) -> bool:
    return value != REDACTED.encode()


def _is_in_place(value: bytes) -> bool:
    """Return whether a value in a secret's position (URL, cookie, option) is one, and not a placeholder."""
    return _is_new(value) and not _PLACEHOLDER.search(value) and not _ABOUT.fullmatch(value.lower())


def _is_literal(value: bytes) -> bool:
    """Return whether a value with a secret's name is one, and not a version, a path or a plain word."""
    return (
        _is_mixed(value)
        and _is_new(value)
        and not _PLACEHOLDER.search(value)
        and not VERSION.match(value)
        and not _PATH.fullmatch(value)
    )


def _is_bare_literal(value: bytes) -> bool:
    """Return whether an unquoted value is a literal as above and does not read as a name in code."""
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
    """Return whether the value is base64 of ``name:password``."""
    try:
        decoded = a2b_base64(value.translate(_URL_SAFE) + b"==")
    except ValueError:
        return False
    return b":" in decoded and decoded.isascii() and decoded.decode("ascii").isprintable()


def _is_mixed(value: bytes) -> bool:
    """Return whether the value has letters with digits or punctuation, digits alone, or long mixed case."""
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


#: The tokens are separate: in one automaton with other rules they have so many states that noise takes ten
#: times as long.
_SCREENED = (RULES[:TOKENS], RULES[TOKENS : TOKENS + 1], RULES[TOKENS + 1 :])


@cache
def _screens() -> tuple[tuple[Any, tuple[Rule, ...]], ...]:
    """Return groups of rules, each with one pattern that matches wherever any of its rules does. Most texts
    have no secret, and one search shows it."""
    return tuple((_re2("|".join(map(_any_case, each))), each) for each in _SCREENED)


def _any_case(rule: Rule) -> str:
    """Return a rule's pattern. Only formats are case-sensitive."""
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


#: Fields that hold sentences by a model or a package client. Other texts (files, edits, names, versions)
#: make up a patch, and stay as they are.
PROSE: Final = frozenset(
    {"citations", "message", "next_step", "notes", "rationale", "reason", "sentence"}
)

ModelT = TypeVar("ModelT", bound=BaseModel)


def without_secrets(model: ModelT) -> ModelT:
    """Return a copy of the model with every sentence redacted, also in nested models."""
    safe = {name: _safe(value, name in PROSE) for name, value in model}
    return model.model_copy(update=safe)


def _safe(value: Any, is_prose: bool) -> Any:
    match value:
        case str() if is_prose and not isinstance(value, Enum):
            return redact_secrets(value)[0]
        case tuple():
            return tuple(_safe(item, is_prose) for item in value)
        case BaseModel():
            return without_secrets(value)
    return value
