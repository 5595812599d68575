"""Redaction: what must not leave, and what must come through."""

import base64
import hashlib
import json
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fallback_tier.prompt import redact
from fallback_tier.prompt.redact import REDACTED, excerpt, redact_secrets

HEX = "0123456789abcdef"
MIX = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzA"
PEM_BODY = "\n".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"] * 5)


def pem(kind: str = "RSA ") -> str:
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{PEM_BODY}\n-----END {kind}PRIVATE KEY-----"


#: (what stands around it, the part that must not survive). Made up; split so that no scanner trips.
TOKENS = [
    "sk-" + "ant-api03-" + MIX * 2,
    "sk-" + "proj-" + MIX,
    "sk-" + MIX + "a1b2c3",
    "ghp_" + MIX + "ab",
    "gho_" + MIX + "ab",
    "ghs_" + MIX + "ab",
    "github_pat_" + MIX,
    "glpat-" + MIX[:20],
    "gldt-" + MIX[:20],
    "AKIA" + "IOSFODNN7EXAMPLE",
    "ASIA" + "IOSFODNN7EXAMPLE",
    "xoxb-" + "123456789012-123456789012-" + MIX[:24],
    "xapp-" + "1-A0123456789-" + MIX,
    "https://hooks.slack.com/services/" + "T00000000/B00000000/" + MIX[:24],
    "npm_" + MIX + "a1",
    "pypi-" + "AgEIcHlwaS5vcmc" + MIX,
    "rubygems_" + HEX * 3,
    "AIza" + MIX + "1",
    "ya29." + MIX,
    "GOCSPX-" + MIX[:28],
    "sk_" + "live_" + MIX[:24],
    "rk_" + "test_" + MIX[:24],
    "whsec_" + MIX,
    "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + MIX,
    "SG." + MIX[:22] + "." + MIX + "123456789",
    "SK" + HEX * 2,
    "dop_v1_" + HEX * 4,
    "hf_" + MIX,
    "shpat_" + HEX * 2,
    "dapi" + HEX * 2,
    "dckr_pat_" + MIX,
    "hvs." + MIX,
    "123456789:AA" + MIX,
    "lin_api_" + MIX,
    "glsa_" + MIX + "_a1b2c3d4",
    "AGE-SECRET-KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L" * 2,
    "gsk_" + MIX,
    "LTAI" + MIX[:20],
    "AKCp" + MIX * 2,
    "A3-" + "ABCDEF-GH1JKL-MN2PQ-RS3TU-VW4XY-Z5ABC",
    "abc1Q~" + MIX,
    "pat" + MIX[:14] + "." + HEX * 4,
    "pscale_tkn_" + MIX,
    "tskey-auth-" + MIX,
]
IN_CONTEXT = [
    ("password = '{}'", "hunter22"),
    ("- POSTGRES_PASSWORD=${{PGPASS:-{}}}", "winterhase"),
    ("POSTGRES_PASSWORD: ${{PGPASS:-{}}}", "winterhase"),
    ("password: &pw {}", "winterhase"),
    ("password: !!str {}", "winterhase"),
    ("password: !vault {}", "winterhase"),
    ("jdbc:oracle:thin:bob/{}@db:1521", "winterhase"),
    ("_auth={}", "winterhase"),
    ("--set auth.password={}", "winterhase"),
    ('DB_PASSWORD="{}"', "correcthorsebattery"),
    ("export AWS_SECRET_ACCESS_KEY={}", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ("client_secret: {}", "8f14e45fceea167a"),
    ('{{"api_key": "{}"}}', "8f14e45f-ceea-467a-9575"),
    ("SMTP_PASS={}", "hunter2222"),
    ("apikey='{}'", "s3cr3tvalue"),
    ("_authToken={}", "0f8fad5b-d9cb-469f-a165-70867728950e"),
    ("//registry.example/:_auth={}", "dXNlcjpwYXNzd29yZDE="),
    ("Authorization: Bearer {}", "abcdef0123456789abcdef"),
    ("authorization: Basic {}", "dXNlcjpwYXNzd29yZDE="),
    ("  -H 'X-Api-Key: {}'", "abcdef0123456789"),
    ("x-api-key: {}", "k9s8d7f6g5h4"),
    ("PRIVATE-TOKEN: {}", "abcdef0123456789"),
    ("Cookie: sessionid={}; theme=dark", "38afes7a8a1b"),
    ("Set-Cookie: sid={}; HttpOnly", "38afes7a8"),
    ("curl -u admin:{} https://example.invalid", "s3cr3t!pw"),
    ("login --password {}", "opensesame"),
    ("git clone https://user:{}@example.invalid/x.git", "p4ssw0rd"),
    ("postgres://app:{}@db:5432/app", "plainwordpassword"),
    ("amqp://app:{}@mq//", "a@b@c1"),
    ("DefaultEndpointsProtocol=https;AccountKey={};", MIX + MIX + "=="),
    ("\x1b[32mtoken\x1b[0m=\x1b[33m{}\x1b[0m", "abc123def456"),
    ("pass\u200bword = '{}'", "hunter22"),
    ("SIGNING_KEY: '{}'", "bXkgc2lnbmluZyBrZXk0Mg"),
]


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize(
    "around", ["{}", "got {} from env", "key={}", '"{}"', "\x1b[31m{}\x1b[0m", "a\n{}\nb", "é{}é"]
)
def test_a_known_format_does_not_survive(token: str, around: str) -> None:
    redacted, count = redact_secrets(around.format(token))
    assert token not in redacted
    assert token[-12:] not in redacted
    assert REDACTED in redacted
    assert count >= 1


@pytest.mark.parametrize("token", TOKENS)
def test_hidden_characters_do_not_smuggle_a_token_through(token: str) -> None:
    for hidden in ("\u200b", "\x1b[01;31m\x1b[K", "\xad"):
        redacted, _ = redact_secrets(f"x {token[:9]}{hidden}{token[9:]} y")
        assert token[-12:] not in redacted


@pytest.mark.parametrize(("around", "secret"), IN_CONTEXT)
def test_a_named_value_does_not_survive(around: str, secret: str) -> None:
    redacted, count = redact_secrets(f"before\n{around.format(secret)}\nafter\n")
    assert secret not in redacted
    assert count >= 1
    assert redacted.startswith("before\n")
    assert redacted.endswith("\nafter\n")


@pytest.mark.parametrize(
    "line",
    [
        "POSTGRES_PASSWORD=${PGPASS}",
        "password: !Ref DbPassword",
        "password: *pw",
        "token: ${{ secrets.TOKEN }}",
    ],
)
def test_a_reference_to_a_secret_stays_readable(line: str) -> None:
    assert redact_secrets(line) == (line, 0)


@pytest.mark.parametrize("kind", ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "])
@pytest.mark.parametrize(
    "form",
    [
        lambda text: text,
        lambda text: text.replace("\n", "\\n"),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\n".join(f"  '{line}\\n' +" for line in text.split("\n")),
        lambda text: text[: len(text) - 200],
        lambda text: text[120:],
        lambda text: text.replace(
            "-----\nMII", "-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: A-1\n\nMII"
        ),
    ],
)
def test_private_keys_do_not_survive_whole_or_cut(kind: str, form: object) -> None:
    text = form(pem(kind))  # type: ignore[operator]
    redacted, _ = redact_secrets(f"one\n{text}\ntwo")
    assert "BAQEFAASCBK" not in redacted
    assert redacted.startswith("one\n")
    assert redacted.endswith("two")
    assert redacted.count("\n") == f"one\n{text}\ntwo".count("\n")  # line numbers hold


def b64(text: str, breaks: int = 0) -> str:
    """base64 of a text, in lines of so many characters where that is not 0."""
    message = base64.b64encode(text.encode()).decode()
    return (
        "\n".join(message[i : i + breaks] for i in range(0, len(message), breaks))
        if breaks
        else message
    )


#: A body that no other rule knows: random, and of the usual length.
RANDOM_LINES = [(hashlib.sha256(bytes([n])).hexdigest() + "Zz+/" * 9)[n : n + 64] for n in range(9)]
KEY_LINES = [
    "-----BEGIN RSA PRIVATE KEY-----",
    *RANDOM_LINES,
    "aB1=",
    "-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize(
    "before",
    [
        *(
            "# ",
            " * ",
            "// ",
            "//! ",
            "> ",
            "; ",
            "-- ",
            "+",
            "-",
            "% ",
            "REM ",
            "<!-- ",
            "    ## ",
        ),
        *("\t", "12\t", "file.txt:12:", "web_1  | ", "2026-11-22T08:41:01Z ERROR [worker] (a) "),
    ],
)
@pytest.mark.parametrize("part", [slice(0, None), slice(0, -3), slice(4, None)])
def test_a_private_key_behind_something_does_not_survive(before: str, part: slice) -> None:
    text = "\n".join(["one", *(before + line for line in KEY_LINES[part]), "two"])
    redacted, _ = redact_secrets(text)
    assert not any(line[20:40] in redacted for line in RANDOM_LINES)
    assert redacted.startswith("one\n")
    assert redacted.endswith("two")
    assert redacted.count("\n") == text.count("\n")


@pytest.mark.parametrize(
    "line",
    [
        "MIIEpAIBAAKCAQEA" + MIX * 2,
        "MIIEvQIBADANBgkqhkiG9w0BAQ" + MIX * 2,
        "MHcCAQEEI" + MIX * 2,
        "b3BlbnNzaC1rZXktdjE" + MIX * 2,
    ],
)
def test_a_private_key_without_its_armour_does_not_survive(line: str) -> None:
    assert MIX not in redact_secrets(f"key: {line}")[0]


#: Texts of other formats, with the part that must not survive.
DOCUMENTS = [
    *(
        (f"{text}\n", "hunter2pass")
        for text in (
            "machine api.example login me password hunter2pass",
            "machine api.example\n  login me\n  account x\n  password hunter2pass",
            "default login me password hunter2pass",
            "machine h password hunter2pass login me",
            "  login me\n  password hunter2pass",
        )
    ),
    ("machine h login me password correcthorse", "correcthorse"),
    (json.dumps({"auths": {"r.example": {"auth": b64("me:plainpw")}}}), b64("me:plainpw")),
    (
        json.dumps({"auths": {"r.example": {"auth": b64("me:plainpw")}}}, indent=1),
        b64("me:plainpw"),
    ),
    (f"    auth: {b64('me:plainpw')}", b64("me:plainpw")),
    ("{\\u0022password\\u0022:\\u0022hunter22\\u0022}", "hunter22"),
    ("{&quot;password&quot;:&quot;hunter22&quot;}", "hunter22"),
]
JSON = [
    ({"password": "hunter22"}, "hunter22"),
    ({"api_key": "8f14e45fceea167a"}, "8f14e45fceea167a"),
    ({"Authorization": "Bearer abcdef0123456789"}, "abcdef0123456789"),
    ({"auth": b64("me:plainpw")}, b64("me:plainpw")),
    ({"url": "https://u:p4ssw0rd@h/"}, "p4ssw0rd"),
    ({"key": "\n".join(KEY_LINES)}, RANDOM_LINES[3]),
    ({"log": f"a\nghp_{MIX}ab\tb"}, f"ghp_{MIX}ab"),
    ({"netrc": "machine h\n login me\n password hunter2pass\n"}, "hunter2pass"),
]
COMMANDS = [
    *("mysql -u root -p{} db", "mysqldump -h db -uroot -p'{}' x", "mariadb -p{}", "7z a -p{} x.7z"),
    *("sshpass -p {} ssh a@b", "sshpass -p{} ssh a@b", "sshpass -p 'x {}' ssh a@b"),
    *("docker login -u me -p {} r.example", "redis-cli -h x -a {} ping", "mongosh -u me -p {}"),
    *("ldapsearch -x -D cn=a -w {}", "openssl rsa -in k -passin pass:{}", "sqlcmd -U sa -P {}"),
    *("smbclient //h/s -U me%{}", "curl --user me:{} https://h", "keytool -storepass {} -list"),
    *(
        "gpg --passphrase {} x",
        "curl -u nobody:{} h",
        "mysql -u a -ppath{}",
        "curl -u nobody:{}group h",
    ),
    *("curl -u me:nogroup{} h", "curl --user=me:root-{} h", "mysql -pprint-{} db"),
]


@pytest.mark.parametrize(("text", "secret"), DOCUMENTS)
def test_a_secret_in_a_known_document_does_not_survive(text: str, secret: str) -> None:
    redacted, count = redact_secrets(f"before\n{text}\nafter")
    assert secret not in redacted
    assert count >= 1
    assert redacted.startswith("before\n")
    assert redacted.endswith("\nafter")


@pytest.mark.parametrize("depth", range(4))
@pytest.mark.parametrize(("value", "secret"), JSON)
def test_a_secret_in_json_does_not_survive_how_deep_ever(
    value: object, secret: str, depth: int
) -> None:
    text = json.dumps(value)
    for _ in range(depth):
        text = json.dumps({"body": text})
    assert secret not in redact_secrets(text)[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_password_on_a_command_line_does_not_survive(command: str) -> None:
    redacted, _ = redact_secrets(f"$ {command.format('correcthorse')}\n")
    assert "correcthorse" not in redacted
    assert redacted.startswith("$ ")
    assert redacted.endswith("\n")


ENCODED = [
    *TOKENS[::4],
    f"token={TOKENS[3]}\n",
    '{"password": "hunter22"}',
    "\n".join(KEY_LINES),
    "user: me\nDB_PASSWORD='correcthorsebattery'\n",
]


@pytest.mark.parametrize("message", ENCODED)
@pytest.mark.parametrize("around", ["data: {}", '"{}"', "data/{}", "a_b/{}=", "\n  {}\n"])
def test_base64_of_a_secret_does_not_survive(message: str, around: str) -> None:
    for form in (b64(message), b64(message).rstrip("="), b64(message, 76), b64(b64(message))):
        text = around.format(form)
        redacted, count = redact_secrets(text)
        middle = len(form) // 2
        assert form[middle - 4 : middle + 12] not in redacted
        assert count >= 1
        assert redacted.count("\n") == text.count("\n")
    safe = base64.urlsafe_b64encode(f"{message}?>~".encode()).decode()
    assert safe[8:24] not in redact_secrets(around.format(safe))[0]


def test_base64_of_a_known_value_does_not_survive() -> None:
    message = b64("it is swordfish-in-plain-words, they say")
    assert redact_secrets(f"x {message} y", frozenset({"swordfish-in-plain-words"})) == (
        f"x {REDACTED} y",
        1,
    )


def test_what_two_runs_of_base64_say_together_nobody_said() -> None:
    first, second = b64("a sentence that ends with token= "), b64("a1b2c3d4e5f6 and goes on so")
    assert not first.endswith("=")  # no padding keeps them apart
    assert redact_secrets(f"{first} {second}")[1] == 0


@pytest.mark.parametrize(
    "text",
    [
        "commit 2a055ab9c5e7f1d3b8a6c4e2f0d1b3a5c7e9f1d3",
        '"integrity": "sha512-v2kDEe57lecTulaDIuNTPy3Ry4gLGJ6Z1O3vE1krgXZNrsQ+LFTGHVxVjcXPs17=="',
        '"integrity": "sha512-AKIAIOSFODNN7EXAMPLE+LFTGHVxVjcXPs17Lhb=="',
        "    --hash=sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "request id 123e4567-e89b-12d3-a456-426614174000",
        '    "jsonwebtoken": "^9.0.0-beta.1",',
        '    "js-tokens": "^4.0.0 || ^5.0.0",',
        '    "@aws-sdk/credential-providers": "3.1.0-rc2",',
        "tokenize-rt==5.2.0",
        "tokenizers==0.19.1rc1 \\",
        "/js-tokens/4.0.0:",
        '{ name = "tokenize-rt", version = "5.2.0" }',
        'content-hash = "d41d8cd98f00b204e9800998ecf8427e"',
        'password = request.form["password"]',
        "const token = token2;",
        "token = config.token1",
        "api_key = process.env.API_KEY_2",
        "self.secret = secret_v2",
        "new_password=b64_str_to_str(data.new_password)",
        "tokens = tokens2[0]",
        '    "passport-yahoo": "git://example.invalid/passport-yahoo.git#OpenID2",',
        '__author_email__ = "b2ziqe@example.invalid"',
        '"case": "pypi-idna-PYSEC-2024-60-bdfc567e"',
        'app -u "https://localhost?test-url-is-sanity=1"',
        "password=get_password1(user)",
        'headers["Authorization"] = "Bearer " + token',
        "url = f'postgres://{user}:{password}@{host}'",
        "re.match(r'://([^:]+):([^@]+)@', url)",
        'if "-----BEGIN RSA PRIVATE KEY-----" in text:\n    raise_on_key(text)\n',
        '"secret": "required"',
        'tokenUrl: "/oauth2/token"',
        "https://example.invalid/a/b?c=d#e1",
        "http://[::1]:8080/x@y",
        "class sk-fading-circle-with-a-long-name {}",
        "npm_config_cache=/tmp/cache",
        "npm_lifecycle_event and npm_package_version",
        "The token: a string. Password: see below.",
        '<input type="password" name="password1">',
        "naïve — 中文 😀",
        'PATH="$PWD:./node_modules/.bin:$PATH"',
        "-v ${PWD}:./app-1:2 -w $OLDPWD:/x1@y",
        'docker run -v "$PWD":/app1:ro x',
        'PATH="$PWD:node_modules/.bin:$PATH"',
        *("mysql -u root -p app", "mysql -P3306", 'mysql -p"$PASSWORD"', "mysql -p$PASSWORD"),
        *("grep -rn mysql -path", "find / -name mysql -prune -print0", "ls mysql -perm /222"),
        *(
            "--user=nobody:nogroup",
            "docker run -u nobody:nogroup x",
            "run --user www-data:www-data",
        ),
        *("docker run -p 8080:80 x", "docker login r.example && docker run -p 8080:80 x"),
        *("ssh -p 2222 a@b", "sshpass -p $PASS ssh a@b", "cp -pr a1 b2", "psql -p 5432"),
        "A machine learning password checker; the login and password fields.",
        *(
            '"auth": "required"',
            "auth: basic1234",
            '"auth": "oauth2-token"',
            "auth=self.auth_handler2",
        ),
        f"icon: {b64('a picture, or a sentence that says nothing at all')}",
        '"integrity": "sha512-' + "Zz+/9aB3" * 10 + '=="',
        r'"\\npassword: see below\\ntoken"',
    ],
)
def test_ordinary_text_comes_through(text: str) -> None:
    assert redact_secrets(text) == (text, 0)


@pytest.mark.parametrize(
    "text",
    [
        *("PWD: SECRET", 'cd $PWD password="SECRET"', "$PWD_TOKEN:SECRET", "cd $PWD; pwd: SECRET"),
        *('const $PWD = "SECRET"', 'this.$PWD = "SECRET"', '$PWD => "SECRET"', "$PWD=SECRET"),
        *("$PWD: SECRET", "mysql://$PWD:SECRET@h/db", "curl -u $PWD:SECRET", '"$PWD:token=SECRET"'),
        *("$PWD:api_key=SECRET", "-v $PWD:password=SECRET", "$PWD:/a:TOKEN=SECRET", "$PWD:SECRET"),
    ],
)
def test_a_password_beside_the_shells_working_folder_goes(text: str) -> None:
    assert "hunter2" not in redact_secrets(text.replace("SECRET", "hunter2-Tr0ub"))[0]


def test_a_secret_beside_one_that_is_already_out_goes_too() -> None:
    jwt = "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + MIX
    redacted, _ = redact_secrets(f"Cookie: jwt={jwt}; sid=38afes7a8")
    assert "38af" not in redacted


def test_known_values_are_taken_out_in_every_spelling() -> None:
    secret = 'pa ss/"wörd"'
    text = f"1 {secret} 2 {quote(secret, safe='')} 3 {json.dumps(secret)}"
    assert redact_secrets(text, frozenset({secret})) == (
        f'1 {REDACTED} 2 {REDACTED} 3 "{REDACTED}"',
        3,
    )


def test_a_known_value_too_short_to_be_one_does_not_shred_the_text() -> None:
    assert redact_secrets("a sentence", frozenset({"a", "", "sent"})) == ("a sentence", 0)


def test_the_longest_known_value_goes_first() -> None:
    redacted, _ = redact_secrets("abcdefgh1234", frozenset({"abcdef", "abcdefgh1234"}))
    assert redacted == REDACTED


def filled() -> st.SearchStrategy[str]:
    """Text in which secrets, their surroundings and noise meet."""
    named = st.sampled_from(IN_CONTEXT).map(lambda pair: pair[0].format(pair[1]))
    noise = st.text(st.characters(), max_size=8) | st.sampled_from(
        ["\n", " ", "=", ": ", '"', "; ", "@"]
    )
    other = st.sampled_from(
        [text for text, _ in DOCUMENTS]
        + [json.dumps(json.dumps(value)) for value, _ in JSON]
        + [command.format("correcthorse") for command in COMMANDS]
        + [b64(message) for message in ENCODED]
        + ["# " + "\n# ".join(KEY_LINES), *KEY_LINES]
    )
    tokens = st.sampled_from(TOKENS)
    return st.lists(st.one_of(named, tokens, other, noise), max_size=12).map("".join)


@settings(deadline=None)
@given(filled())
def test_any_text_can_be_redacted_twice(text: str) -> None:
    once, _ = redact_secrets(text)
    assert redact_secrets(once) == (once, 0)


@settings(deadline=None)
@given(filled())
def test_a_screen_hides_no_rule_and_runs_of_base64_are_all_found(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    for screen, rules in redact._screens():
        finds = any(redact._compiled(rule).pattern.search(data) for rule in rules)
        assert bool(screen.search(data)) == finds
    assert list(redact._runs(data)) == [match.span() for match in redact._RUN.finditer(data)]


@settings(deadline=None)
@given(st.text(st.characters(), max_size=60), st.text(st.characters(), max_size=60))
def test_a_token_never_survives_its_surroundings(before: str, after: str) -> None:
    token = "ghp_" + MIX + "ab"
    redacted, _ = redact_secrets(f"{before} {token} {after}")
    assert token not in redacted


@settings(deadline=None)
@given(st.text(st.characters(), max_size=300), st.integers(min_value=1, max_value=80))
def test_an_excerpt_is_short_and_visible(text: str, limit: int) -> None:
    shown = excerpt(text, limit)
    assert len(shown) <= limit
    assert "\x1b" not in shown
    shown.encode()


def test_an_excerpt_is_redacted_before_it_is_cut() -> None:
    token = "ghp_" + MIX + "ab"
    assert excerpt(f"x {token}", 20) == "x [REDACTED]"
