"""Which failures of an import are the same one, by what the probe says of them."""

import pytest

from fallback_plugins.shared.gates.comparing import Finding, Loading, failures
from fallback_plugins.shared.installation import NotInstalled

URL_QUOTE = "ImportError: cannot import name 'url_quote' from 'werkzeug.urls' ({}/urls.py)"


def found(output: str) -> dict[str, Finding]:
    return failures(output, Loading(["app", "lib"], lambda _tree, _names: NotInstalled(""), str))


def key(message: str) -> str:
    return found(f"cannot import app: {message}")["app"].key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (URL_QUOTE.format("/state/python-1/werkzeug"), URL_QUOTE.format("/home/me/python-22/w")),
        ("Error: <Lock at 0x7f00aa>", "Error: <Lock at 0x55d0C3e1>"),
        ("OSError: no '/tmp/cache-x1/a'", "OSError: no '/tmp/cache-9k/b'"),
        ("OSError: no tmpab12cd_e", "OSError: no tmpzz99zz99"),
        ("SyntaxError: invalid syntax (a.py, line 3)", "SyntaxError: invalid syntax (a.py, line 12)"),
        ("Error: see a.py:3", "Error: see a.py:14"),
    ],
)  # fmt: skip
def test_where_and_when_make_no_other_failure(one: str, other: str) -> None:
    assert key(one) == key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ImportError: no a", "ImportError: no b"),
        ("ImportError: no a", "OSError: no a"),
        ("Error: needs left<2, and 1.4 is here", "Error: needs left<2, and 2.1 is here"),
        ("Error: it needs Python 3.12", "Error: it needs Python 3.13"),
        (URL_QUOTE.format("/w"), URL_QUOTE.format("/w").replace("quote", "join")),
        # Not all of what an object's address looks like is one.
        ("Error: 10x more", "Error: 20x more"),
    ],
)
def test_other_words_are_another_failure(one: str, other: str) -> None:
    assert key(one) != key(other)


def test_a_finding_is_shown_without_the_folders_of_this_machine() -> None:
    message = URL_QUOTE.format("/state/python-1/werkzeug") + " see app/core/x.py"
    assert found(f"cannot import app: {message}\n")["app"].text == (
        "cannot import app: ImportError: cannot import name 'url_quote' from 'werkzeug.urls' "
        "(…/urls.py) see app/core/x.py"
    )


def test_what_a_module_prints_is_no_failure_of_another() -> None:
    output = "cannot import plugins: none\ncannot import app: ImportError: no\n"
    assert list(found(output)) == ["app"]
