"""Typical code of a kind of weakness: useful if an advisory names no function.

The kinds are those of MITRE's CWE list; each is recognised by its numbers or by the words that advisories
use for it. A pattern matches code that may have such a weakness, not only code that has it.
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple, Protocol


class Sign(Protocol):
    """A pattern of RE2: its time depends only on the text's length."""

    def search(self, text: str) -> re.Match[str] | None:
        """Return the first match, or None."""
        ...


class Weakness(NamedTuple):
    """A kind of weakness. ``cwe``: its numbers; ``said``: its names in advisories; ``code``: patterns of
    code that may have it."""

    cwe: frozenset[int]
    said: re.Pattern[str]
    code: tuple[str, ...]


def _kind(cwe: tuple[int, ...], names: str, *code: str) -> Weakness:
    return Weakness(frozenset(cwe), re.compile(names, re.IGNORECASE), code)


_KINDS = (
    _kind(
        (915, 1321),
        r"prototype.pollut|mass.assignment",
        r"\[\s*[\w.$]+\s*\]\s*=[^=]|\[\s*[\w.$]+\s*\]\s*=$",
        r"\bfor\s*\((?:const|let|var)?\s*\w+\s+(?:in|of)\b|\.forEach\(",
        r"__proto__|\bprototype\b|hasOwn|\bconstructor\b",
        r"=\s*\{\}\s*(?:;|$)|Object\.(?:assign|keys|entries|create)",
    ),
    _kind(
        (1333, 730, 185),
        r"\bre-?dos\b|regular.expression|regex|backtrack",
        r"=\s*/(?:[^/\\\n]|\\.)+/[dgimsuvy]*|\(/(?:[^/\\\n]|\\.)+/[dgimsuvy]*",
        r"\bRegExp\(|\bre\.(?:compile|match|search|sub|split|findall|fullmatch)\(",
        r"(?:[*+]\)?|\})\s*\)?[*+{]|\([^)\n]*[*+]\)[*+]",
    ),
    _kind(
        (22, 23, 24, 35, 36, 59, 61, 73, 98, 426, 427),
        r"travers|zip.?slip|symlink|symbolic.link|arbitrary file|outside (?:of )?the|hidden (?:file|dir)",
        r"\b(?:os\.path|posixpath|ntpath|path|pathlib)\.\w+\(|\bPath\(",
        r"\bopen\(|readFile|writeFile|createReadStream|createWriteStream|sendFile|send_file",
        r"decodeURI|unquote|realpath|normpath|normalize|\bjoin\(|symlink|readlink|extract",
        r"\.\./|'\.\.'|\"\.\.\"|startsWith\(|startswith\(|is_hidden",
    ),
    _kind(
        (79, 80, 83, 87, 116),
        r"\bxss\b|cross.site.script|html.inject",
        r"escape|sanitiz|autoescape|Markup|mark_safe|\bsafe\b",
        r"innerHTML|outerHTML|insertAdjacent|document\.write|dangerously",
        r"<[a-z]+[ >]|html|attribut",
    ),
    _kind(
        (77, 78, 88, 94, 95, 96, 913, 1336),
        r"command.(?:inject|exec)|code.(?:inject|exec)|\brce\b|template.inject|sandbox|eval",
        r"\b(?:exec|execSync|execFile|spawn|spawnSync|popen|Popen|system|check_output)\b|subprocess",
        r"\beval\(|new Function|\bFunction\(|\bcompile\(|runIn\w*Context|__import__|getattr\(",
        r"shell\s*[=:]|quote|render",
    ),
    _kind(
        (89, 90, 91, 564, 643, 943),
        r"\b(?:no)?sql.?inject|xpath|ldap",
        r"execute(?:script|many)?\(|\bquery\(|\braw\(|cursor|\btext\(",
        r"\bSELECT\b|\bINSERT\b|\bUPDATE\b|\bWHERE\b|\$where",
    ),
    _kind(
        (502, 611, 776, 827),
        r"deserial|pickle|unmarshal|\bxxe\b|external.entit",
        r"pickle|marshal|\byaml\.\w*load|jsonpickle|unserialize|deserialize",
        r"\bloads?\(|__reduce__|find_class|opcode|ElementTree|etree|resolve_entities|parseString",
    ),
    _kind(
        (601,),
        r"open.redirect|redirect",
        r"redirect|[Ll]ocation\b|\bnext\b|referrer|returnTo|return_to",
        r"urlparse|urlsplit|new URL\(|netloc|\bhost(?:name)?\b",
    ),
    _kind(
        (918, 441),
        r"\bssrf\b|request.forgery|internal (?:network|address)",
        r"urlopen|\brequests?\.|fetch\(|https?\.(?:get|request)|axios|got\(",
        r"\bhost(?:name)?\b|redirect|is_private|ip_address|resolve",
    ),
    _kind(
        (352, 346, 942, 1385),
        r"\bcsrf\b|cross.site.request|\bcors\b|\borigin\b",
        r"csrf|xsrf|[Oo]rigin\b|[Rr]eferer|content.?type|same.?site|Access-Control",
    ),
    _kind(
        (74, 93, 113, 444, 436),
        r"smuggl|header.inject|crlf|response.splitting|newline",
        r"\\r|\\n|transfer.encoding|content.length|chunked",
        r"headers?\b|parse",
    ),
    _kind(
        (200, 201, 212, 319, 522, 532, 668),
        r"leak|disclos|expos|sensitive information",
        r"[Aa]uthoriz|[Cc]ookie|password|secret|token|credential",
        r"headers?\b|redirect|\blog(?:ger|ging)?\b",
    ),
    _kind(
        (264, 269, 284, 285, 287, 288, 290, 306, 639, 862, 863),
        r"authentication|authoriz|permission|privilege|access.control|bypass",
        r"permission|authori[sz]e|authenticat|\blogin|is_staff|\brole|allowed|forbidden|403|401",
    ),
    _kind(
        (295, 297, 345, 347, 354, 208, 203, 327, 330, 338),
        r"signature|certificate|verif|timing|\btls\b|random",
        r"verify|signature|certificate|\bcert|hostname|digest|hmac|compare|issuer|audience",
        r"Math\.random|random\.|timingSafe|compare_digest",
    ),
    _kind(
        (400, 407, 409, 674, 770, 789, 834, 835, 1050),
        r"denial.of.service|\bdos\b|exhaust|infinite|recurs|stack overflow|unbounded|decompress|bomb",
        r"\bwhile\b|recurs|depth|\bmax_|\blimit|\bmax[A-Z]|MAX_",
        r"length|size|decompress|gunzip|inflate|read\(",
    ),
)

_NUMBER = re.compile(r"CWE-(\d+)")


def signs_of(cwe: Iterable[str], text: str) -> tuple[Sign, ...]:
    """Return the signs of the weaknesses that an advisory names, by number (``CWE-79``) or else in
    words."""
    numbers = {int(match[1]) for identifier in cwe if (match := _NUMBER.fullmatch(identifier))}
    by_number = tuple(kind for kind in _KINDS if kind.cwe & numbers)
    kinds = by_number or tuple(kind for kind in _KINDS if kind.said.search(text))
    return tuple(_compiled(code) for kind in kinds for code in kind.code)


@cache
def _compiled(code: str) -> Sign:
    import re2

    compiled: Sign = re2.compile(f"(?m){code}")
    return compiled
