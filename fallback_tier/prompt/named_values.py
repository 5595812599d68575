"""Values that only their name marks as secret: ``API_TOKEN: str = "swordfish"``, in code of any language.

The text is read by tokens that nearly all languages share (names, strings, brackets, operators), from each
name whose words mark a secret to the end of the value that is assigned, passed, defaulted, compared or
nested below it. So a function, a line of a diff, a log or a string of JSON that contains code is read like
a whole file; there is no grammar per language, and none is missing (ADR-0097).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

from fallback_tier.lazy_patterns import lazy_pattern


class Level(IntEnum):
    """How certain a name makes it that its value is a secret."""

    NONE = 0
    #: ``TOKEN_COMMA``: the value must have digits or marks, like a generated one.
    FAINT = 1
    #: ``token``, ``auth``: words with other meanings too. A plain word must be long.
    WEAK = 2
    #: ``password``, ``api_key``: any literal, even a word of a dictionary.
    STRONG = 3


def _word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _token_set(text: str) -> frozenset[bytes]:
    return frozenset(text.encode().split())


# --- Names -----------------------------------------------------------------------------------------------

#: Parts of names that may be a secret's; ``_level`` then judges all words of the name.
_HITS: Final = (
    r"pass(?:w|phrase|code|key)|(?:\b|_|-)pass\b|(?-i:[a-z]Pass)\b|pwd|pswd|(?:\b|_|-)pw\b|secret|token|cred(?:ential|s\b)"
    r"|(?:{})[_.-]?keys?|auth|cookie|bearer|dsn|mnemonic|kennwort|contrasena|senha|jwt|psk\b"
)
#: Words that make a key a secret; those of the second set may also be before other keys (of a dictionary,
#: of a row).
_KEYS_STRONG: Final = _word_set(
    """
    api access auth encryption license licence private secret shared signing sign ssh webhook aes
    hmac jwt rsa crypto cipher deploy consumer subscription stripe sendgrid openai aws azure gcp
    google maps mailgun twilio anthropic github kms vault signature decryption symmetric preshared
    master root admin pgp gpg ssl tls
    """
)
_KEYS_WEAK: Final = _word_set(
    """
    account client session storage service app application server db database host user
    """
)
#: Words that make a token a credential, not a piece of a parsed text.
_TOKENS_STRONG: Final = _KEYS_STRONG | _word_set(
    """
    bearer refresh id session oauth bot gitlab slack discord telegram npm pypi user personal
    security registry device push client service account verification login app hf huggingface
    """
)
_PASS_OF: Final = _word_set(
    """
    db database user smtp mail email admin root ftp auth http mysql pg postgres redis rabbitmq mongo
    ldap proxy key store my login sudo ssh imap wifi account service
    """
)
_STRONG: Final = _word_set(
    """
    password passwords passwd passwds passphrase passphrases passcode passcodes passwort kennwort
    contrasena senha pwd pwds pswd pw secret secrets credential credentials creds cred apikey
    apikeys mnemonic passkey psk authtoken accesstoken apitoken secretkey privatekey accesskey
    """
)
_WEAK: Final = _word_set(
    """
    token tokens pass cookie cookies bearer dsn jwt authorization
    """
)
#: Endings of words written together: ``userpassword``, ``mysecret``.
_STRONG_ENDS: Final = (
    "password",
    "passwords",
    "passwd",
    "passphrase",
    "secret",
    "secrets",
    "apikey",
    "secretkey",
    "credentials",
    "authtoken",
    "accesstoken",
    "pwd",
)
#: Words after or before the noun: the name is about the secret, it is not the secret.
_ABOUT: Final = _word_set(
    """
    type types kind url urls uri uris endpoint endpoints field fields label labels name names id ids
    length len size timeout header headers prefix suffix param params parameter parameters path
    paths file files filename regex pattern message messages error errors exception exceptions hint
    placeholder algorithm algorithms alg scheme schemes expiry expires expiration expire ttl
    lifetime age class classes test tests validator validators reset count limit limits min max
    required help prompt text title format encoding env var variable policy policies hasher hashers
    strength rule rules manager provider providers service services store backend backends view
    views form forms page template route router handler middleware factory builder parser location
    locations method methods mode model models serializer status state version reader writer source
    description desc comment comments enabled disabled allowed supported column table index input
    output generator lengths scope scopes domain domains charset event events action actions role
    roles realm audience issuer host hosts hostname port region user users username usernames login
    email emails date time at on by in of within after before since address button link icon
    component module package plugin guard strategy strategies option check doc docs algo cost rounds
    iterations bits chars characters interface dialog modal screen section tag tags style color
    display locale language usage purpose reference ref selector arn attr attribute property
    integrity resolved digest checksum href src alt rel maxlength minlength autocomplete dummy
    """
)
#: Words before the noun: a state of a secret, or an action on it.
_STATES: Final = _word_set(
    """
    forgot forgotten reset change changed invalid missing wrong incorrect expired is has no show
    hide toggle require requires required need needs enter allow enable disable without validate
    validates match matches compare delete remove revoke verify check should can
    """
)
#: Words before the name of a function: it returns a secret, and its arguments say which.
_GIVES: Final = _word_set(
    """
    get find generate create make parse read fetch load has is new random
    """
)
#: Keywords of a call that pass the value itself; other keywords are about it.
_VALUE_KEYS: Final = _word_set(
    """
    value values default defaults fallback initial initialvalue raw data content contents plaintext
    literal string defaultvalue rawvalue text s v val otherwise factory default_factory
    """
)

#: A setting of browsers, not a secret.
_NO_SECRET: Final = ("with", "credentials")

_VALUE_MEMBERS: Final = frozenset(word.encode() for word in _VALUE_KEYS)
_WORD: Final = lazy_pattern(rb"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


@lru_cache(4096)
def _words(name: bytes) -> tuple[str, ...]:
    return tuple(word.decode("ascii").lower() for word in _WORD.findall(name))


@lru_cache(4096)
def _level(name: bytes) -> Level:
    """Return how certain the words of a name are; the last noun among them decides."""
    words = _words(name)
    for at in range(len(words) - 1, -1, -1):
        level = _noun_level(words, at)
        if not level:
            continue
        rest = [word for word in words[at + 1 :] if not word.isdigit()]
        if not _ABOUT.isdisjoint(rest) or (words[0] in _STATES and at) or words == _NO_SECRET:
            return Level.FAINT
        if rest and level is Level.WEAK:
            return Level.FAINT
        return level
    return Level.NONE


def _noun_level(words: tuple[str, ...], at: int) -> Level:
    word, previous = words[at], words[at - 1] if at else ""
    if word in _STRONG or (len(word) > 8 and word.endswith(_STRONG_ENDS)):
        return Level.STRONG
    if word in ("key", "keys"):
        if previous in _KEYS_STRONG:
            return Level.STRONG
        return Level.WEAK if previous in _KEYS_WEAK else Level.NONE
    if word == "pass" and (len(words) == 1 or previous in _PASS_OF):
        return Level.STRONG
    if word == "auth" and previous in ("basic", "digest", "ntlm"):
        return Level.STRONG
    if word in ("token", "tokens"):
        return Level.STRONG if previous in _TOKENS_STRONG else Level.WEAK
    return Level.WEAK if word in _WEAK else Level.NONE


@lru_cache(4096)
def _key_level(key: bytes, base: Level, *, in_call: bool) -> Level:
    """Return the level of a key's value inside a secret's: ``{"alice": …}``, ``Field(default=…)``."""
    key_level = _level(key)
    if key_level:
        return max(key_level, base)
    words = _words(key)
    if in_call:
        return base if words and words[-1] in _VALUE_KEYS else Level.NONE
    return Level.NONE if words and words[-1] in _ABOUT else base


# --- Tokens ----------------------------------------------------------------------------------------------

_NEWLINE, _SPACE, _COMMENT, _STRING, _NAME, _NUMBER, _MARK = (
    "nl",
    "sp",
    "com",
    "str",
    "name",
    "num",
    "mark",
)
_TYPE_ARGUMENTS = "gen"

_TOKEN: Final = lazy_pattern(
    rb"""
    (?P<sp>(?:[ \t\r\f\v]|\\+[rt]|\\\r?\n)+)
  | (?P<nl>\n|\\+n)
  | (?P<gen>(?<=\w)<[\w\s,.|?:&*\[\]'<>]{1,100}>)
  | (?P<com>(?<![\w(\[{])\#(?!\\*[\["'])(?:(?!\\+n)[^\n])*|//(?:(?!\\+n)[^\n])*|/\*.{0,2000}?\*/)
  | (?P<str>\\*(?:\"\"\"|'''|["'`])|%[qQwW]?[\[({<](?=[^\s\])}>]))
  | (?P<name>[A-Za-z_$\x80-\xff@][\w$\x80-\xff]*(?:(?:\.|->|::|\?\.|&\.|!\.)[A-Za-z_$\#][\w$]*)*)
  | (?P<num>[0-9][\w.]*)
  | (?P<mark>===?|!==?|<=|>=|:=|=>|->|<-|\|\|=?|\?\?=?|\?:|&&|[-+*/|?.~]=|::|[^\w\s])
    """,
    re.VERBOSE | re.DOTALL,
)
#: ``&'static str``, ``<'a>``: not a quote.
_LIFETIME: Final = lazy_pattern(rb"'[a-z_]\w*\b(?!')")
_COMPARE: Final = frozenset({b"==", b"===", b"!=", b"!=="})
_ASSIGN: Final = frozenset({b"=", b":=", b"<-", b"||=", b"??=", b"?=", b"+=", b".=", b"|="})
_ELSE: Final = frozenset({b"||", b"??", b"?:", b"or", b"else"})
_ELSE_MARKS: Final = _ELSE | {b"&&", b"=>", b"->", b"|"}
#: Tokens at the end of a line after which the value continues on the next line.
_OPEN_ENDED: Final = (
    _ASSIGN
    | _ELSE
    | _token_set(
        """
    && + - . , : | & == === => ->
    """
    )
)
_WORD_OPERATORS: Final = _token_set(
    """
    if else elif or and not in is new await return lambda unless while when then yield typeof void
    case
    """
)

#: Tokens that a statement begins with: braces around it contain code.
_STATEMENTS: Final = _token_set(
    """
    const let var if for while try switch throw await function def class import export do assert
    print expect
    """
)
#: Bytes of one value. The total for a text is its length and a constant more; after that (in a hostile text
#: with many names) only a literal directly after each name is read.
_MAX_VALUE_BYTES: Final = 64 * 1024
_MAX_NAME_CHARS: Final = 200
_NAME_BYTES: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$-"
_LEAST_STEPS: Final = 20_000
_MAX_SLASHES: Final = 64
_LITERAL: Final = lazy_pattern(rb"\s*[A-Za-z@$]{0,2}\\*([\"'`])([^\"'`\n\\]{3,200})")


class _Token(NamedTuple):
    kind: str
    start: int
    end: int
    text: bytes
    #: The span of a string's content.
    inner: tuple[int, int] = (0, 0)


# --- Values ----------------------------------------------------------------------------------------------

#: Words that describe a value, and so are not one: types, encodings, schemes, algorithms.
_NO_VALUES: Final = _token_set(
    """
    string str text number integer int float boolean bool bytes object undefined null none nil true
    false function symbol bigint array any void unknown dict list buffer bearer basic digest
    negotiate apikey required optional hidden utf-8 utf8 utf-16 ascii latin1 latin-1 iso-8859-1 hex
    base64 base64url binary sha1 sha256 sha-256 sha384 sha512 sha-512 md5 hs256 hs384 hs512 rs256
    rs384 rs512 es256 es384 es512 ps256 bcrypt argon2 argon2id argon2i scrypt pbkdf2 post get put
    delete patch head redacted self this default char varchar authorization content-type utf8mb4
    plain jwt aes-256-cbc aes-256-gcm aes-128-cbc rsa query header body cookie strict lax eof eq ne
    gt lt identifier include omit same-origin write read integrity
    idna unicode_escape utf_8 cp1252 surrogateescape ignore replace rot13
    """
)
#: Other words in names of fields, next to the secret's own.
_FIELD_WORDS: Final = _ABOUT | _word_set(
    """
    user new old current confirm confirmation repeat again db api access auth client x http https
    oauth oauth2 csrf xsrf jwt bearer app account session refresh bot web service the a an of for
    and key keys value hash hashed encrypted plain raw digest forgot reset change set get has is no
    invalid missing wrong expired require database postgres mysql redis smtp mail email aws azure
    gcp google github gitlab slack stripe openai basic proxy remember me authorization login sign
    private public secret signing webhook encryption verify verification validate create update
    delete token tokens password passwords secrets credentials config settings options storage amz
    date next request response data
    """
)
_PLACEHOLDER: Final = lazy_pattern(
    rb"\\?\$\{[^{}]*\}|\\?\$\([^()]*\)|#\{[^{}]*\}|\\\([^()]*\)|\{\{.*?\}\}|\{[\w.:!\[\]()'\"-]*\}|<%.*?%>|<[^<>]*>|%\(\w+\)[sdr]|%[sdvqr@]|\$[A-Za-z_]\w*"
    rb"|\*{3,}|[xX]{6,}|\.{3,}",
    re.DOTALL,
)
#: The replacement of a secret that is removed already.
_REDACTED: Final = b"[REDACTED]"
_ESCAPE: Final = lazy_pattern(rb"\\+(?:[abefnrtv0]|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2})")
_SCHEME: Final = lazy_pattern(
    rb"(?:bearer|basic|token|digest|apikey|negotiate|aws4-hmac-sha256)(?:\s+|\Z)", re.IGNORECASE
)
#: Versions and version ranges (``"jsonwebtoken": "^9.0.0-beta.1"``) are not secrets.
VERSION: Final = lazy_pattern(rb"(?:npm:\S+@)?[\^~<>=!v ]*\d+(?:\.(?:\d+|[xX*]))+")
#: A path or an address: each part is a word, with at most one digit.
_PATH: Final = lazy_pattern(
    rb"(?:[a-z][a-z0-9+.-]*:/)?(?:\.{0,2}|~|@?[A-Za-z][\w.-]{0,40})(?:/(?:[A-Za-z_.:@*{}?=&-]*[0-9]?[A-Za-z_.:@*{}?=&-]*){0,3}){1,40}#?",
)
_URL: Final = lazy_pattern(rb"[a-z][a-z0-9+.-]{1,20}://[^\s@]*(?:@[^\s@]*)?", re.IGNORECASE)
_FILE_NAME: Final = lazy_pattern(
    rb"[\w./-]+\.(?:py|js|ts|json|ya?ml|toml|html?|txt|pem|key|crt|css|png|svg|php|rb|go|rs|env)"
)
_DOTTED: Final = lazy_pattern(rb"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*){2,}")
_VARIABLE: Final = lazy_pattern(rb"[A-Za-z_$][\w$]*(?:[.?!]+[A-Za-z_$][\w$]*)*")
_LETTER, _DIGIT = re.compile(rb"[A-Za-z\x80-\xff]"), re.compile(rb"[0-9]")
_MARKS: Final = lazy_pattern(rb"[!#%^*?@~+=/\\&]")
#: A pattern; the digest of a file; the value of a permission.
_REGEX: Final = lazy_pattern(
    rb"\(\?[:=!<P]|\[(?:a-z|A-Z|0-9|\^|\\+[dwsS])|\\+[dws][*+{]|\.\*\)|\)[*+?]\\"
)
_DIGEST: Final = lazy_pattern(rb"sha(?:1|256|384|512)[-:=][0-9A-Za-z+/=]{20,}")
_NO_SECRETS: Final = (_PATH, _URL, _FILE_NAME, _DOTTED, _DIGEST)
_SENTENCE_END: Final = lazy_pattern(rb"[.:?!,;]\s*\Z|[.:?!,;] ")

_LEAST: Final = {Level.STRONG: 3, Level.WEAK: 6, Level.FAINT: 6}
_LEAST_WEAK_WORD: Final = 8


@lru_cache(4096)
def _is_secret(content: bytes, level: Level) -> bool:
    """Return whether a literal is a secret if its name has this level: not a field's name, type, encoding,
    path, version, pattern or sentence."""
    text = _ESCAPE.sub(b" ", content) if b"\\" in content else content
    text = text.strip()
    if text == _REDACTED[:-1]:
        return False
    if _REDACTED in text:  # the rest of a value that a rule removed in part
        rest = _SCHEME.sub(b"", text.replace(_REDACTED, b"")).strip()
        has_rest = _LETTER.search(rest) or _DIGIT.search(rest)
        return level is Level.STRONG and has_rest is not None and not _is_prose(rest)
    if text.lower() in _NO_VALUES:
        return False
    rest = _PLACEHOLDER.sub(b"", text)
    rest = _SCHEME.sub(b"", rest.strip()).strip()
    has_placeholder = rest != text
    if len(rest) < _LEAST[level] or rest.lower() in _NO_VALUES:
        return False
    if not _LETTER.search(rest):
        if _DIGIT.search(rest):
            return VERSION.match(rest) is None
        return level is Level.STRONG and b" " not in rest and len(rest) >= 6 and len(set(rest)) > 3
    if VERSION.match(rest) or any(pattern.fullmatch(rest) for pattern in _NO_SECRETS):
        return False
    if _REGEX.search(rest) or _names_something(rest):
        return False
    if b" " in rest or b"\n" in rest:
        return level is Level.STRONG and not has_placeholder and not _is_prose(rest)
    if _is_mixed(rest):
        return True
    if level is Level.STRONG:
        return not has_placeholder or (len(rest) >= 6 and rest.isalnum())
    return level is Level.WEAK and len(rest) >= _LEAST_WEAK_WORD and rest.isalpha()


def _names_something(value: bytes) -> bool:
    """Return whether a literal names a field (``"password"``, ``"X-Api-Key"``): all its words are a
    secret's nouns or fields' words.

    A password may look like that, but programs that compare field names must stay readable.
    """
    if len(value) > 60 or _DIGIT.search(value) or b" " in value or not value.isascii():
        return False
    words = _words(value)
    nouns = [
        word in ("key", "keys") or _noun_level(words, index) for index, word in enumerate(words)
    ]
    return any(nouns) and all(
        noun or word in _FIELD_WORDS for noun, word in zip(nouns, words, strict=True)
    )


def _reads_as_variable(value: bytes) -> bool:
    """Return whether a word without quotes may be a variable that holds a secret: ``new_password``."""
    words = _words(value)
    return _VARIABLE.fullmatch(value) is not None and any(
        _noun_level(words, index) for index in range(len(words))
    )


def _is_prose(value: bytes) -> bool:
    """Return whether the words are a sentence about secrets, not a passphrase."""
    words = _words(value)
    noun_indexes = [index for index in range(len(words)) if _noun_level(words, index)]
    other_words = (word for index, word in enumerate(words) if index not in noun_indexes)
    if noun_indexes and (
        value[:1].isupper()
        or len(words) > 4
        or all(word in _FIELD_WORDS | _STATES for word in other_words)
    ):
        return True
    has_sentence_end = len(words) >= 3 and _SENTENCE_END.search(value) is not None
    return has_sentence_end or (b"\n" in value and len(words) > 12)


def _is_mixed(value: bytes) -> bool:
    if _DIGIT.search(value):
        return True
    mixed_case = value != value.lower() and value != value.upper()
    return (len(value) >= 8 and _MARKS.search(value) is not None) or (
        len(value) >= 20 and mixed_case
    )


# --- From a name to its value ----------------------------------------------------------------------------

_ESCAPED_SPACE: Final = rb"(?:\s|\\+[nrt])"
_OPERATOR: Final = lazy_pattern(
    rb"(?:[ \t]|\\+[rt])*+(?P<op>===?|!==?|:=|=>|\|\|=?|\?\?=?|\?:|<-|[?+.|]?=(?!~)|:(?!:|//)|,|\(|\{"
    rb"|\|\||(?:or|eq|ne|equals|by)\b|(?:not[ \t]+)?in\b|is(?:[ \t]+not)?\b)"
)
_CLOSED: Final = lazy_pattern(rb"(?P<quote>\\*[\"'`])?(?P<brackets>[ \t]*+[\])])*")
_INDEXES: Final = lazy_pattern(rb"(?:[ \t]?\[[^\[\]\n]{0,100}\])+")
#: Allowed between an opening quote and a name.
_QUOTED_LEAD: Final = lazy_pattern(rb"[\w.:/$ #\[=*~^-]{0,60}")
_MEMBER: Final = lazy_pattern(rb"(?:\.|->|\?\.|!\.)([A-Za-z_]\w*)")
#: Methods of a secret, or of a list of them, that take another value of it.
_VALUE_METHODS: Final = _token_set(
    """
    append add push set insert extend equals equalsIgnoreCase eq put setText set_text send_keys
    sendKeys fill type val concat unshift setValue set_value
    """
)
_LOOKUP_METHODS: Final = _token_set(
    """
    get pop setdefault fetch getOrDefault
    """
)
_OR_ELSE: Final = lazy_pattern(
    rb"(?:\.\w+\(\)|\?)*\.(?:unwrap_or(?:_else)?|orElse(?:Get)?|or_else|getOrElse|getOrDefault|ifEmpty|ifBlank|map_or|presence_or)\("
)
#: ``VAR: Type =`` is read as a value; these are types without a colon: of Go, of SQL.
_TYPE: Final = lazy_pattern(
    rb"[ \t]+(?:\*|\[\]|&)*[A-Za-z_][\w.]*(?:\[[\w.\]]*)?(?=[ \t]*+=[^=])"
    rb"|[ \t]+AS(?=[ \t])"
)
_VALUE_OF: Final = lazy_pattern(
    rb"(?:\\*[\"'])?,?"
    + _ESCAPED_SPACE
    + rb"*+(?:\\*[\"'])?(?:default_?)?(?:value|content|secret)(?:\\*[\"'])?[ \t]*+[:=](?!=)[ \t]*+",
    re.IGNORECASE,
)
_MARKUP: Final = lazy_pattern(
    rb"(?:\\*[\"'][^<>\n]{0,200})?(?:\s[^<>\n]{0,200})?>\s*+(?:</[\w:.-]{1,60}>\s*+)?(?:<(?![/!])[\w:.-]{1,60}[^<>]{0,200}>\s*+)?"
    rb"(?:<!\[CDATA\[)?(?P<value>[^<>\]]{1,4000}?)\s*+(?:\]\]>\s*+)?</"
)
_IN_MARKUP: Final = lazy_pattern(
    rb"<[\w:.-]*\Z|<[^<>]*\b(?:name|key|id|property|field|param|var)[ \t]*+=[ \t]*+\\*[\"'][\w.:/ -]*\Z"
)
_NEXT_ELEMENT: Final = lazy_pattern(
    rb"\s*+</[\w:.-]{1,60}>\s*+<(?![/!])[\w:.-]{1,60}[^<>]{0,200}>\s*+(?P<value>[^<>\]]{1,4000}?)\s*+</"
)
_CALL_BEFORE: Final = lazy_pattern(
    rb"(?P<callee>[\w.$:>!-]+)[ \t]*+\(\s*+(?:[^()\[\]{}\n]{0,100},\s*+)?"
    rb"(?:[bfru@]{0,2}\\*[\"'`][\w.:/$ #\[=*~^-]{0,60})\Z"
)
_DEFAULT: Final = lazy_pattern(rb"[^()]{0,300}?\b(?:default|value)\s*+[=:]\s*+(?=[bru]?\\*[\"'])")
#: Selectors of browsers are quoted too: ``fill("#password", "swordfish")``.
_PAIR_BEFORE: Final = lazy_pattern(rb"[(\[{,]\s*+[(\[{]\s*+\\*[\"'`]\Z")
#: Calls that take several names.
_LIST_CALLS: Final = _word_set(
    """
    only pick omit exclude except without describe it test t gettext ugettext ngettext hasattr
    column field fields values valueslist values_list defer order_by orderby permit require param
    params filter without_keys select append includes contains startswith endswith add_argument join
    in expect assertin assertequal print println log
    """
)
_YODA: Final = lazy_pattern(
    rb"(?P<quote>\\*[\"'])(?P<value>[^\"'\\\n]{1,100})(?P=quote)"
    rb"(?:\s*+[!=]==?\s*+|\.equals(?:IgnoreCase)?\(\s*+|\s*+,\s*+)(?:[\w$]+(?:\.|->|\?\.)){0,4}\$?\Z"
)
_VALUE_BEFORE: Final = lazy_pattern(
    rb"(?:value|content)(?:\\*[\"'])?\s*+[:=]\s*+(?P<quote>\\*[\"'])(?P<value>[^\"'\\\n]{1,100})(?P=quote)"
    rb"\s*+,?\s*+(?:\\*[\"'])?(?:name|key|id)(?:\\*[\"'])?\s*+[:=]\s*+\\*[\"'][\w.:/-]*\Z",
    re.IGNORECASE,
)
#: The rest after a name in an assertion, and its label in printed output.
_EXPECTED: Final = lazy_pattern(
    rb"\)(?:\.\w+){0,3}?\.(?:toBe|toEqual|toStrictEqual|toMatch|equals?|eql?|isEqualTo)\("
)
_LABEL: Final = lazy_pattern(rb"[:=]?[ \t]*+\\*[\"'][ \t]*+,[ \t]*+(?=\\*[\"'])")
_NAMES_BEFORE: Final = lazy_pattern(
    rb"[ \t]*+(?:(?:[-+#/*>]{1,3}|[\w-]{1,20}[ \t]*+\||[0-9]+:)[ \t]*+)?"
    rb"(?:(?:let|var|const|my|local|final)\b[ \t]*+)?"
    rb"[(\[]?[ \t]*+(?:[\w.$]+[ \t]*+,[ \t]*+){1,8}\$?\Z"
)
_NAMES_AFTER: Final = lazy_pattern(
    rb"(?:[ \t]*+,[ \t]*+[\w.$*]+){0,8}[ \t]*+[)\]]?[ \t]*+(?P<op>:=|=)(?![=>~])"
)
_SWITCH_BEFORE: Final = lazy_pattern(
    rb"(?:\b|(?<=\\n))(?:match|switch|when|case)[ \t]*+\(?[ \t]*+(?:[\w$]+\.)*\$?\Z"
)
_SWITCHES: Final = (b"match", b"switch", b"when", b"case")
_CASE: Final = lazy_pattern(rb"\b(?:case|when)[ \t]+(?=\\*[\"'])")
_DEFINED_BEFORE: Final = lazy_pattern(
    rb"\b(?:def|function\*?|func|fn|fun|sub|class|struct|interface|enum|trait)[ \t]+"
    rb"(?:\([^()\n]*\)[ \t]*+)?\Z"
)
_RETURNED: Final = lazy_pattern(
    rb"\s*+(?:->[ \t]*+[^{:=\n]{1,60}|:[ \t]*+[\w<>\[\]|?. &']{1,40}|[\w\[\]*.&' ]{1,30})?\s*+"
    rb"(?:[{:]\s*+(?:(?:\"\"\"[^\"]{0,2000}\"\"\"|//[^\n]*|\#[^\n]*)\s*+)?(?:return\s|(?=\\*[\"'`][^\"'`\n]*[\"'`]\s*+\}))"
    rb"|=>?\s*+(?=\\*[\"'`]))"
)
_LINE_BEFORE: Final = lazy_pattern(
    rb"(?P<quoted>[\"'`]?)[ \t]*+(?:(?:[-+#/*>;|]{1,3}|REM|[\w-]{1,20}[ \t]*+\||[0-9]+:)[ \t]+|[-+](?=\w))?"
    rb"[ \t]*+(?:[-][ \t]+)?"
    rb"(?P<command>(?:(?:export|ENV|ARG|set|setx|declare[ \t]+-x|env|readonly|Environment=)[ \t]*+)?)"
    rb"(?:[\w$-]+[.:/])*(?P<open>[\"']?)\Z"
)
_REST_OF_LINE: Final = lazy_pattern(
    rb"[ \t]*+(?P<value>[^\s\"'`,;(){}\[\]<>$|\\][^\s\"'`,;(){}\[\]<>\\]{2,})"
    rb"[ \t]*+(?=\r?\n|\Z|\\+[nr]|\\*[\"'`]|(?<=[ \t])\#)"
)
_SHELL_WORD: Final = lazy_pattern(
    rb"(?P<value>[^\s\"'`,;(){}\[\]<>$|&\\=][^\s\"'`,;(){}\[\]<>\\]{2,})(?=[\s;\"'`]|\Z|\\+[nr])"
)
_ITEM: Final = lazy_pattern(
    rb"(?P<indent>[ \t]*+)(?P<dash>-[ \t]+)?(?:(?P<key>[\w.-]+)[ \t]*+:[ \t]+)?"
    rb"(?P<value>[^\s\"'{}\[\]|>&*!][^\n\"'{}\[\]]*)(?:\n|\Z)"
)
_BLOCK: Final = lazy_pattern(rb"[ \t]*+[|>][-+0-9]*[ \t]*+\r?\n")
_CODE: Final = lazy_pattern(
    rb"[(){};]|,[ \t]*+\r?\Z|^\s*+(?:import|from|def|class|return|if|const|let|var|public|private)\b"
)
#: A line's indentation and first character, unless that closes a bracket or begins a literal.
_INDENTED: Final = lazy_pattern(rb"([ \t]*+(?:[-+>|#*/]{1,3}[ \t]+)?)([^\s)\]}>\"'`\\;,<&|+.?:-])?")
_CONTINUED: Final = lazy_pattern(
    rb"(?:\s|\\+[nrt])*+(?:\|\||\?\?|\?:|\?(?![.?])|\+|&&|\.[A-Za-z]|or\b)"
)
_KEY_MARK: Final = lazy_pattern(_ESCAPED_SPACE + rb"*+(?::(?![:=])|=>|=(?![=>~]))")
_PREFIX: Final = lazy_pattern(rb"(?:[bBfFrRuUL]{1,2}|u8|@|\$|c|br|cr|[sf])\Z")
#: ``auth=(user, "swordfish")``.
_USER_AND: Final = lazy_pattern(rb"\\*[\"']?\s*+[:=]\s*+[(\[][^()\[\]\n]{1,100},\s*+\\*[\"']")
_PROPERTY: Final = lazy_pattern(rb"\s*+\{\s*+(?:(?:\w+\s+)?(?:get|set|init);\s*+){1,2}\}(?=\s*+=)")
_PERCENT_PAIRS: Final = {b"(": b")", b"[": b"]", b"{": b"}", b"<": b">"}

#: Calls that take a value's name, and after it a default.
_LOOKUPS: Final = _word_set(
    """
    get getenv env environ fetch pop read load open require import input prompt getpass query param
    params header headers cookie cookies find select config resolve lookup var getproperty valueof
    ask question option option_env lookupenv setting getstring getattribute getparameter getitem
    data_get path file resource parse
    """
)
#: Calls whose literals are parameters: a separator, an encoding, a message.
_NO_CALLS: Final = _word_set(
    """
    split rsplit join replace strip lstrip rstrip trim startswith endswith match test
    exec search sub findall includes indexof charat slice substring substr tostring digest hexdigest
    update removeprefix removesuffix partition rpartition createhash createhmac isinstance strftime
    reverse url_for redirect render render_template log info warn warning error debug print println
    printf queryselector getelementbyid expect describe it gettext ugettext gettext_lazy t i18n
    translate createelement querybyrole contains matches column charfield foreignkey post put patch
    getbyrole isa instanceof getattr hasattr setattr emit on dispatch
    """
)


@dataclass(slots=True)
class _Frame:
    """A bracket that is open in a value, and the level of literals in it."""

    kind: str  # call, group, list, index, block; value: outside all brackets
    base: Level
    now: Level
    place: int = 0
    skips_first: bool = False
    is_new: bool = True
    in_ternary: bool = False
    #: After ``= if``: the value begins after the condition.
    has_condition: bool = False

    def next(self) -> None:
        """Begin another element."""
        self.now, self.is_new, self.in_ternary = self.base, True, False


def named_values(data: bytes) -> list[tuple[int, int]]:
    """Return the spans of a text's secrets (UTF-8) that names mark, in order, none nested."""
    reader = _Reader(data)
    for match in _names().finditer(data):
        reader.read(*match.span())
    return reader.spans


@cache
def _names() -> Any:
    import re2

    options = re2.Options()
    options.case_sensitive = False
    options.max_mem = 32 << 20
    keys = "|".join(sorted(_KEYS_STRONG | _KEYS_WEAK))
    return re2.compile(rf"(?:{_HITS.format(keys)})[\w-]*", options=options)


class _Reader:
    """Reader of one text's values; its steps are bounded by the text's length."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._found: set[tuple[int, int]] = set()
        self._steps_left = len(data) + _LEAST_STEPS

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Return the spans found so far, and of nested ones the outer one."""
        merged: list[tuple[int, int]] = []
        for start, end in sorted(self._found, key=lambda span: (span[0], -span[1])):
            if not merged or start >= merged[-1][1]:
                merged.append((start, end))
        return merged

    def read(self, start: int, end: int) -> None:
        """Find the values of the name that has the word at ``start``."""
        data = self._data
        begin = data[max(0, start - _MAX_NAME_CHARS) : start]
        start -= len(begin) - len(begin.rstrip(_NAME_BYTES))
        if data[start - 1 : start] == b"\\" and start:
            start += 1  # skip the letter of an escape: ``\napi_key``
        is_option = data.startswith(b"-", start)
        level = _level(data[start:end])
        if not level and data[start:end].lower().endswith(b"auth") and _USER_AND.match(data, end):
            level = Level.STRONG
        if not level:
            return
        preceding = data[max(0, start - 200) : start]
        self._before(preceding, start, level)
        closed = _CLOSED.match(data, end)
        assert closed is not None  # noqa: S101 (it matches an empty text, too)
        in_quote = _is_in_quote(preceding)
        quoted = bool(closed["quote"] and in_quote)
        at = closed.end() if quoted or not closed["quote"] else end
        tag = preceding[-80:]
        in_markup = b"<" in tag and _IN_MARKUP.search(tag)
        markup = (_MARKUP if in_markup else _NEXT_ELEMENT).match(data, end)
        if markup:
            self._take(*markup.span("value"), level)
        if (quoted or _line_key(preceding)) and (value_of := _VALUE_OF.match(data, end)):
            self._literal_or_word(value_of.end(), level)
        if index := _INDEXES.match(data, at):
            at = index.end()
        if expected := _EXPECTED.match(data, end):
            self._values(expected.end(), _compared(level), immediate=True)
        if in_quote and (label := _LABEL.match(data, end)) and not quoted:
            self._values(label.end(), level, immediate=True, before=(b")", b","))
        if or_else := _OR_ELSE.match(data, at):
            self._values(or_else.end(), level, _Frame("call", level, level))
            return
        if member := _MEMBER.match(data, at):
            if not quoted or member[1] in _VALUE_METHODS:
                self._of_member(member, level)
            return
        if any(word in preceding for word in _SWITCHES) and _SWITCH_BEFORE.search(preceding):
            for case in _CASE.finditer(data, at, at + 500):
                self._values(case.end(), _compared(level), immediate=True)
            return
        self._after(at, start, preceding, level, quoted=quoted, is_option=is_option)

    def _after(
        self, at: int, start: int, preceding: bytes, level: Level, *, quoted: bool, is_option: bool
    ) -> None:
        data = self._data
        several = None if quoted else _NAMES_AFTER.match(data, at)
        if several and (
            b"," in several[0]
            or _NAMES_BEFORE.match(
                preceding,
                max(_newline_end(preceding), preceding.rfind(b";") + 1, preceding.rfind(b"{") + 1),
            )
        ):
            self._values(several.end(), level, is_list=True)
            return
        if not quoted and (typed := _TYPE.match(data, at) or _PROPERTY.match(data, at)):
            at = typed.end()
        line = _LINE_BEFORE.match(preceding, _line_start(preceding))
        operator = _OPERATOR.match(data, at)
        if operator is None:
            if line and line["command"] and data[at : at + 1] == b" ":
                self._word(at, level)
            elif not quoted and level is Level.STRONG and data[at : at + 1] in (b" ", b"\t"):
                self._values(at, level, immediate=True)
            return
        op, at = operator["op"], operator.end()
        if op[:1].isalpha() and op != b"is" and data[at : at + 2].lstrip()[:1] == b"`":
            return  # prose: "credentials in `setUp`"
        match op:
            case b"(":
                if data[at - 2 : at - 1] not in (b"]", b" ", b'"', b"'", b"`"):
                    self._called(at, start, preceding, level)
            case b",":
                if data[at - 2 : at - 1] != b")":
                    self._listed(at, preceding, level, quoted=quoted, is_option=is_option)
            case b"{":
                self._values(at, level, _Frame("call", level, level))
            case b"==" | b"===" | b"!=" | b"!==" | b"in" | b"is" | b"eq" | b"ne" | b"equals":
                self._values(at, _compared(level), immediate=True)
            case _ if op.startswith((b"not", b"is")):
                self._values(at, _compared(level), immediate=True)
            case _:
                if (
                    op == b"="
                    and data[start : at - 1].isupper()
                    and self._shell_word(at, preceding, level)
                ):
                    return
                if line and op in (b":", b"=", b":=", b"?="):
                    self._line(at, start, line, op, level)
                self._values(at, level, may_break=quoted or op != b":")

    # --- Forms ---

    def _before(self, preceding: bytes, start: int, level: Level) -> None:
        """Read ``"x" == password``, ``assertEqual("x", password)``, ``value="x" name="password"``."""
        match = None
        if (
            b"==" in preceding
            or b"!=" in preceding
            or b"qual" in preceding
            or b"ssert_eq" in preceding
        ):
            match = _YODA.search(preceding)
        elif b"alue" in preceding or b"ontent" in preceding:
            match = _VALUE_BEFORE.search(preceding)
        if match:
            shift = start - len(preceding)
            self._take(match.start("value") + shift, match.end("value") + shift, _compared(level))

    def _of_member(self, member: re.Match[bytes], level: Level) -> None:
        name, at = member[1], member.end()
        if self._data[at : at + 1] == b"(":
            if name in _LOOKUP_METHODS:
                self._values(at + 1, level, _Frame("call", level, level, skips_first=True))
            elif name in _VALUE_METHODS and level is Level.STRONG:
                self._values(at + 1, level, _Frame("call", level, level))
            return
        operator = _OPERATOR.match(self._data, at)
        if operator and operator["op"] in (b"=", b"+=") and name.lower() in _VALUE_MEMBERS:
            self._values(operator.end(), level)

    def _called(self, at: int, start: int, preceding: bytes, level: Level) -> None:
        """Read ``set_password("x")``, and ``def password(): return "x"``."""
        words = _words(self._data[start:at])
        takes_secret = any(_noun_level(words, index) is Level.STRONG for index in range(len(words)))
        if takes_secret and words[0] not in _GIVES and not _DEFINED_BEFORE.search(preceding):
            level = Level.STRONG
            self._values(at, level, _Frame("call", level, level))
        closed = self._data.find(b")", at, at + 500)
        if closed >= 0 and (returned := _RETURNED.match(self._data, closed + 1)):
            self._values(returned.end(), level, immediate=True)

    def _listed(
        self, at: int, preceding: bytes, level: Level, *, quoted: bool, is_option: bool
    ) -> None:
        """Read ``put("password", "x")``, ``["--password", "x"]``, ``equal(password, "x")``."""
        if not quoted:
            self._values(at, _compared(level), immediate=True, before=(b")", b"}"))
            return
        if default := _DEFAULT.match(self._data, at):
            self._values(default.end(), level, immediate=True)
        if self._data[at : at + 20].lstrip()[:1] in (b"[", b"{", b"("):
            return
        call = _CALL_BEFORE.search(preceding)
        if call:
            callee = call["callee"].rpartition(b".")[2].rpartition(b":")[2]
            if callee.decode("ascii", "replace").lower() in _LIST_CALLS:
                level = Level.FAINT
        elif not (is_option or _PAIR_BEFORE.search(preceding)):
            level = Level.FAINT
        self._values(at, level, immediate=True, before=(b")", b",", b"]", b"}"))

    def _literal_or_word(self, at: int, level: Level) -> None:
        self._values(at, level, immediate=True)
        self._word(at, level)

    def _word(self, at: int, level: Level, *, is_code: bool = False) -> bool:
        """Take the rest of a line without quotes; ``is_code``: it may be a variable."""
        word = _REST_OF_LINE.match(self._data, at)
        if word is None or (is_code and _reads_as_variable(word["value"])):
            return False
        return self._take(*word.span("value"), level)

    def _shell_word(self, at: int, preceding: bytes, level: Level) -> bool:
        """Take ``API_KEY=swordfish ./run``, ``"API_KEY=sword fish"``: code is not written like that."""
        quote = preceding[-1:]
        word = _SHELL_WORD.match(self._data, at)
        if quote in (b'"', b"'"):
            word = re.compile(rb"(?P<value>[^\"'\\\n]{3,200})(?=\\*" + quote + rb")").match(
                self._data, at
            )
        return word is not None and self._take(*word.span("value"), level)

    def _line(self, at: int, start: int, line: re.Match[bytes], op: bytes, level: Level) -> None:
        """Take a setting, ``DB_PASSWORD=swordfish`` or ``password: swordfish``, and the lines below it."""
        data = self._data
        if level is Level.STRONG and _BLOCK.match(data, at):
            self._below(at, start, level)
            return
        name = data[start:at].partition(op)[0].strip(b"\"' \t")
        has_no_space = data[at - len(op) - 1 : at - len(op)] != b" " and op == b"="
        if (has_no_space and (name.isupper() or line["command"] or line["quoted"])) or (
            level is Level.STRONG and not line["quoted"] and not self._is_among_code(start, at)
        ):
            is_code = not has_no_space and not name.isupper()
            if not self._word(at, level, is_code=is_code):
                self._below(at, start, level)

    def _is_among_code(self, start: int, at: int) -> bool:
        data = self._data
        lines = re.split(rb"\n|\\+n", data[max(0, start - 300) : start])[:-1][-3:]
        lines += re.split(rb"\n|\\+n", data[at : at + 400])[1:4]
        return any(_CODE.search(line) for line in lines)

    def _below(self, at: int, start: int, level: Level) -> None:
        """Take the lines that are indented below a name in YAML."""
        data = self._data
        begin = data.rfind(b"\n", 0, start) + 1
        depth = len(data[begin:start]) - len(data[begin:start].lstrip(b" \t"))
        block = _BLOCK.match(data, at)
        if block:
            end = first = block.end()
            while line := re.compile(rb"([ \t]*)[^\n]*\n?").match(data, end):
                if not line[0] or (line[0].strip() and len(line[1]) <= depth):
                    break
                end = line.end()
            body = data[first:end].rstrip()
            lead = len(body) - len(body.lstrip())
            if body:
                self._take(first + lead, first + len(body), level)
            return
        head = re.compile(rb"[ \t]*\r?\n").match(data, at)
        while head and (item := _ITEM.match(data, head.end())):
            if len(item["indent"]) < depth + (not item["dash"]):
                break
            item_level = _key_level(item["key"], level, in_call=False) if item["key"] else level
            if item_level:
                self._take(*item.span("value"), item_level)
            head = item

    # --- Values ---

    def _take(self, start: int, end: int, level: Level) -> bool:
        content = self._data[start:end]
        start += len(content) - len(content.lstrip())
        content = content.strip()
        end = start + len(content)
        is_secret = len(content) <= _MAX_VALUE_BYTES and _is_secret(content, level)
        if is_secret:
            self._found.add((start, end))
        return is_secret

    def _values(
        self,
        at: int,
        level: Level,
        opened: _Frame | None = None,
        *,
        is_list: bool = False,
        immediate: bool = False,
        may_break: bool = True,
        before: tuple[bytes, ...] = (),
    ) -> None:
        """Take the literals of the value at ``at``, up to its end or that of the bracket ``opened``.

        ``immediate``: one literal or group; ``before``: only if one of these follows; ``is_list``: commas
        don't end it; ``may_break``: it may begin on the next line.
        """
        data, start = self._data, at
        if self._steps_left < 0:
            if literal := _LITERAL.match(data, at):
                self._take(*literal.span(2), level)
            return
        frames = [_Frame("value", level, level)] + ([opened] if opened else [])
        last: _Token | None = None
        for token in self._tokens(at):
            frame = frames[-1]
            outside = len(frames) == 1
            if token.kind == _NEWLINE:
                if outside and not immediate and not self._goes_on(last, token.end, may_break):
                    return
                if outside and immediate and last is None and not may_break:
                    return
                if not outside and self._has_ended(token.end, start):
                    return
                if frame.kind == "block":
                    frame.next()
                continue
            if token.kind == _STRING:
                if not outside and self._is_key(token, frame):
                    frame.now = _key_level(
                        data[token.inner[0] : token.inner[1]], frame.base, in_call=False
                    )
                elif not (frame.skips_first and frame.place == 0) and frame.now:
                    if before and not data[token.end :].lstrip().startswith(before):
                        return
                    self._take(*token.inner, frame.now)
                if outside and immediate:
                    return
            elif token.kind == _NAME:
                if _PREFIX.match(token.text) and data[token.end : token.end + 1] in (
                    b'"',
                    b"'",
                    b"`",
                ):
                    continue
                if outside and immediate:
                    return
                if frame.kind == "block" and frame.is_new and token.text in _STATEMENTS:
                    return
                self._name(token, frame, last, outside=outside)
                if outside and token.text in (b"then", b"do", b"for", b"while"):
                    return
            elif token.kind == _NUMBER:
                if outside and immediate:
                    return
            elif token.text in (b"(", b"[", b"{"):
                if token.text == b"{" and frame.has_condition:
                    frame.now = frame.base
                frames.append(_opened(token, last, frame))
            elif token.text in (b")", b"]", b"}"):
                if outside:
                    return
                frames.pop()
                if len(frames) == 1 and (opened or immediate):
                    return
                if frames[-1].has_condition:
                    frames[-1].has_condition, frames[-1].now = False, frames[-1].base
            elif not self._mark(token, frame, last, outside=outside, is_list=is_list):
                return
            if token.kind != _NAME or token.text != b"return":
                frames[-1].is_new = frames[-1].is_new and frames[-1] is not frame
            last = token

    def _name(self, token: _Token, frame: _Frame, last: _Token | None, *, outside: bool) -> None:
        word = token.text
        if word == b"if" and (last is None or last.kind == _MARK):
            frame.has_condition = True
        if word in (b"or", b"else", b"and", b"return", b"lambda", b"yield"):
            frame.now = frame.base
        elif word in (b"if", b"unless", b"while", b"when", b"in", b"is", b"for", b"instanceof"):
            frame.now = Level.NONE
        elif outside or word in _WORD_OPERATORS:
            return
        elif self._is_key(token, frame):
            if frame.kind in ("block", "list") and not frame.is_new:
                frame.now = Level.NONE  # a statement
            else:
                frame.now = _key_level(word, frame.base, in_call=frame.kind == "call")
        elif (
            frame.kind == "block" and frame.is_new and self._data[token.end : token.end + 1] != b"{"
        ):
            frame.now = Level.NONE

    def _mark(
        self, token: _Token, frame: _Frame, last: _Token | None, *, outside: bool, is_list: bool
    ) -> bool:
        """Return whether the value continues after this mark."""
        text = token.text
        if text == b",":
            if outside and not is_list:
                return False
            frame.place += 1
            frame.next()
        elif text == b";":
            return False  # a statement's end: the braces contain code, not a dictionary
        elif text == b":":
            if frame.in_ternary:
                frame.in_ternary, frame.now = False, frame.base
            elif outside and not (last and last.text == b"lambda"):
                return False
        elif text == b"?":
            frame.in_ternary, frame.now = True, frame.base
        elif text in _COMPARE:
            frame.now = Level.NONE
        elif text in _ELSE_MARKS or (outside and text in _ASSIGN):
            frame.now = frame.base
        return True

    def _is_key(self, token: _Token, frame: _Frame) -> bool:
        if frame.kind == "index" or not (mark := _KEY_MARK.match(self._data, token.end)):
            return False
        return not (mark[0].endswith(b":") and frame.in_ternary)

    def _goes_on(self, last: _Token | None, at: int, may_break: bool) -> bool:
        if last is None:
            return may_break
        if last.text in _OPEN_ENDED or last.text in _WORD_OPERATORS:
            return True
        return _CONTINUED.match(self._data, at) is not None

    def _has_ended(self, at: int, start: int) -> bool:
        """Return whether the line at ``at`` begins another statement than the one at ``start``. Brackets
        don't show that (patterns, comments); the lines of a value are indented."""
        line = _INDENTED.match(self._data, at)
        assert line is not None  # noqa: S101 (it matches an empty text, too)
        return bool(line[2]) and len(line[1]) <= self._indent(start)

    def _indent(self, at: int) -> int:
        begin = self._data.rfind(b"\n", 0, at) + 1
        line = _INDENTED.match(self._data, begin)
        return len(line[1]) if line else 0

    # --- Tokens ---

    def _tokens(self, at: int) -> Iterator[_Token]:
        data = self._data
        stop = min(len(data), at + _MAX_VALUE_BYTES)
        while at < stop:
            match = _TOKEN.match(data, at, stop)
            if match is None:
                return
            kind = match.lastgroup or _MARK
            if kind == _STRING:
                token = self._string(match, stop)
            elif kind in (_SPACE, _COMMENT, _TYPE_ARGUMENTS):
                self._steps_left -= match.end() - at
                at = match.end()
                continue
            else:
                token = _Token(kind, match.start(), match.end(), match[0])
            self._steps_left -= token.end - at
            yield token
            at = token.end

    def _string(self, match: re.Match[bytes], stop: int) -> _Token:
        data, start, begin = self._data, match.start(), match.end()
        delimiter = match[0]
        mark = _Token(_MARK, start, begin, delimiter)
        if delimiter[:1] == b"%":
            end = data.find(_PERCENT_PAIRS[delimiter[-1:]], begin, begin + 500)
            return mark if end < 0 else _Token(_STRING, start, end + 1, b"%", (begin, end))
        if (
            delimiter.endswith(b"'")
            and data[start - 1 : start] in (b"&", b"<")
            and _LIFETIME.match(data, begin - 1)
        ):
            return mark
        quote = delimiter[-1:]
        depth = len(delimiter) - len(delimiter.lstrip(b"\\"))
        terminator = delimiter if len(delimiter) - depth == 3 else quote
        if depth and len(delimiter) - depth == 1 and data.startswith((delimiter * 3), start):
            terminator, begin = delimiter * 3, start + 3 * len(delimiter)  # an escaped triple quote
        multi_line = len(terminator) > 1 or quote == b"`"
        at = begin
        while True:
            quote_at = data.find(quote, at, stop)
            self._steps_left -= max(quote_at, at) - at
            if quote_at < 0:
                return mark
            if not multi_line and data.find(b"\n", at, quote_at) >= 0:
                line_end = data.find(b"\n", at, quote_at)
                if data[line_end - 1 : line_end] != b"\\":
                    return mark
                at = line_end + 1
                continue
            preceding = data[max(begin, quote_at - _MAX_SLASHES) : quote_at]
            slashes = len(preceding) - len(preceding.rstrip(b"\\"))
            if len(terminator) > 1:
                if data.startswith(terminator, quote_at - slashes if depth else quote_at) and (
                    depth or slashes % 2 == 0
                ):
                    inner = quote_at - slashes if depth else quote_at
                    return _Token(
                        _STRING, start, inner + len(terminator), terminator, (begin, inner)
                    )
            elif slashes <= depth if depth else slashes % 2 == 0:
                inner = quote_at - slashes if depth else quote_at
                return _Token(
                    _STRING,
                    start,
                    quote_at + (slashes == depth or not depth),
                    quote,
                    (begin, inner),
                )
            at = quote_at + 1


def _opened(token: _Token, last: _Token | None, frame: _Frame) -> _Frame:
    """Return the frame of a bracket: its position determines the level of literals in it."""
    adjacent = last is not None and last.end == token.start
    now = frame.now
    if token.text == b"(":
        if last is not None and (
            (last.kind == _NAME and last.text not in _WORD_OPERATORS and adjacent)
            or last.text == b"!"
        ):
            return _call(last.text, now)
        return _Frame("group", now, now)
    if token.text == b"[":
        if (
            adjacent
            and last is not None
            and (last.kind in (_NAME, _STRING) or last.text in (b")", b"]"))
        ):
            if last.text.endswith(b"Annotated"):
                return _Frame("call", now, now, skips_first=True)
            return _Frame("index", Level.NONE, Level.NONE)
        return _Frame("list", now, now)
    return _Frame("block", now, now)


def _call(callee: bytes, now: Level) -> _Frame:
    """Return the frame of a call: the first argument of a lookup is a name, a separator is not a value."""
    parts = re.split(rb"[^\w$]+", callee)
    name = parts[-1].decode("ascii", "replace").lower()
    words = _words(parts[-1])
    if name in _NO_CALLS or (words and words[-1] in ("error", "exception")):
        return _Frame("call", Level.NONE, Level.NONE)
    is_lookup = any(part.decode("ascii", "replace").lower() in _LOOKUPS for part in parts) or (
        bool(words) and words[0] in _LOOKUPS
    )
    level = now if now is Level.STRONG or is_lookup else min(now, Level.FAINT)
    return _Frame("call", level, level, skips_first=is_lookup)


def _compared(level: Level) -> Level:
    """Return the level of a compared literal: lexers compare tokens with plain words."""
    return level if level is Level.STRONG else Level.FAINT


def _line_key(preceding: bytes) -> bool:
    """Return whether ``name:`` precedes, as for a variable in Kubernetes."""
    return preceding.rstrip(b" \t\"'").endswith((b"name:", b"key:"))


def _is_in_quote(preceding: bytes) -> bool:
    """Return whether a string that has begun continues to the end of the text."""
    last = max(preceding.rfind(b'"'), preceding.rfind(b"'"), preceding.rfind(b"`"))
    return last >= 0 and _QUOTED_LEAD.fullmatch(preceding, last + 1) is not None


def _line_start(preceding: bytes) -> int:
    """Return the beginning of the line, or of a string in it."""
    tail = preceding[:-1] if preceding[-1:] in (b'"', b"'") else preceding
    return max(_newline_end(preceding), *(tail.rfind(quote) for quote in (b'"', b"'", b"`")))


def _newline_end(preceding: bytes) -> int:
    """Return the beginning of the line, also in a string with escaped line ends."""
    escaped = preceding.rfind(b"\\n")
    return max(preceding.rfind(b"\n") + 1, escaped + 2 if escaped >= 0 else 0)
