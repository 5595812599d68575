"""The lexicon of weakness families: every pattern works, and says the family it stands under."""

import re

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from fallback_plugins.solved_examples.search.weakness import affinity, families, weaknesses

TITLES = {
    "path_containment": "Path traversal lets clients read files outside the served directory",
    "archive_extraction": "Zip Slip: extracting an archive writes to any place",
    "regex_backtracking": "Regular expression denial of service (ReDoS) in the date parser",
    "prototype_pollution": "Prototype pollution through the key __proto__",
    "command_injection": "Command injection through a branch name given to a shell",
    "header_injection": "CRLF injection: a newline in a value starts another header",
    "ssrf": "Server-side request forgery reaches services on the loopback address",
    "unsafe_deserialisation": "Unpickling an uploaded model runs what it says",
    "missing_authorisation": "Missing authorization check on the export endpoint",
    "resource_limit": "Unbounded memory consumption by many large form fields",
    "tls_verification": "Certificate verification is switched off behind a proxy",
    "timing_comparison": "Token comparison is not constant time: a timing attack",
    "cross_site_scripting": "Stored XSS: the display name is not escaped in HTML",
    "xml_entity": "XML external entity (XXE) expansion in the feed reader",
    "request_smuggling": "HTTP request smuggling with chunked transfer-encoding",
    "sql_injection": "SQL injection through the sort column",
    "secret_in_output": "Passwords are written to the log in plain text",
    "weak_randomness": "Predictable session tokens: Math.random is no source of entropy",
    "open_redirect": "Open redirect after login through the next parameter",
    "symlink_following": "Extraction follows symbolic links",
    "session_lifetime": "Session fixation: tokens remain valid after logout",
    "csrf": "Cross-site request forgery on the delete view",
    "credential_forwarding": "Authorization header is leaked on a cross-origin redirect",
    "decompression_bomb": "Decompression bomb in gzip bodies",
    "recursion_depth": "Deeply nested arrays exhaust the stack by recursion",
    "infinite_loop": "Infinite loop on a truncated stream",
}


@pytest.mark.parametrize(("family", "title"), TITLES.items())
def test_a_title_speaks_of_its_family(family: str, title: str) -> None:
    profile = weaknesses(title)
    assert profile[family] == max(profile.values())


def test_the_lexicon_is_well_formed() -> None:
    for name, family in families().items():
        assert set(family) == {"cwe", "text"}, name
        assert re.fullmatch(r"[a-z_]+", name)
        assert family["text"]
        assert all(isinstance(number, int) for number in family["cwe"])
        assert len(set(family["cwe"])) == len(family["cwe"]), name
        for pattern in family["text"]:
            compiled = re2.compile(pattern)
            assert not compiled.search(""), f"{name}: {pattern} matches anything"


def test_a_cwe_id_speaks_where_words_do_not() -> None:
    assert set(weaknesses("nothing told", cwe=["CWE-352"])) == {"csrf"}
    assert weaknesses("nothing told", cwe=["cwe-352"]) == weaknesses("", cwe=["CWE-352"])
    assert weaknesses("", cwe=["CWE-999999", "nonsense"]) == {}


def test_a_title_says_more_than_a_body() -> None:
    profile = weaknesses(
        "SQL injection in the report\nIt can also be used for request forgery: CSRF."
    )
    assert profile["sql_injection"] > profile["csrf"] > 0


@given(st.text(max_size=400))
def test_any_text_has_a_profile_of_length_1_or_none(text: str) -> None:
    profile = weaknesses(text)
    assert sum(weight * weight for weight in profile.values()) == pytest.approx(int(bool(profile)))
    assert affinity(profile, profile) == pytest.approx(int(bool(profile)))


def test_affinity_is_symmetric_and_bounded() -> None:
    profiles = [weaknesses(title) for title in TITLES.values()]
    for one in profiles:
        for other in profiles:
            assert affinity(one, other) == pytest.approx(affinity(other, one))
            assert -1e-9 <= affinity(one, other) <= 1 + 1e-9
    assert affinity(profiles[0], {}) == 0


def test_a_hostile_text_takes_no_time_and_no_exception() -> None:
    for text in ("../" * 200_000, "(" * 100_000, "a \ud800 b", "\0" * 1_000):
        weaknesses(text)
