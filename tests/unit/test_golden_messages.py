"""The golden file of all messages is the product's; tests assert kinds and values, not its sentences."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.golden.messages import (
    FILE,
    ROOT,
    Collected,
    as_text,
    collect,
    collected_from,
    no_collecting,
    outside_braces,
    sources,
)

#: One worker: what is collected, and the tests' code, is read once.
pytestmark = pytest.mark.xdist_group("golden-messages")

#: What is left of comparisons with the product's sentences (file, text), and why.
LEFT = {
    ("tests/campaigns/tests_judged/results.py", "at the base commit"): (
        "no assertion: it sorts recorded rows of earlier builds, which have the sentence alone"
    ),
}

#: What they look at, by the last name of the expression.
_LOOKED_AT = {
    **dict.fromkeys(
        ("str", "problem", "next_step", "reason", "detail", "message", "sentence", "notes"), "text"
    ),
    **dict.fromkeys(("stdout", "stderr", "out", "err", "output"), "output"),
}

#: Fewer words in a row are a value, a name or a key.
_PROSE_WORDS = 2

#: What a user types is a name, not prose.
_COMMAND = re.compile(r"`[^`]*`")

#: Of an error, a finding or a verdict; events' kinds are names of classes.
_KIND = re.compile(r"[a-z][a-z0-9_]*")

_WORD = re.compile(r"(?<![\w`'\"./-])[A-Za-z][a-z']+(?![\w/-])")


@pytest.fixture(scope="module")
def collected() -> Collected:
    return collect()


def test_the_golden_file_is_up_to_date(collected: Collected) -> None:
    made_anew = as_text(collected)
    assert FILE.read_text(encoding="utf-8") == made_anew, (
        "read the difference as a user would, then: python -m tests.golden.messages --remake"
    )


def test_each_exception_that_is_made_has_a_message_or_is_listed(collected: Collected) -> None:
    said = {message.carrier.partition(":")[0] for message in collected.messages}
    said |= {one.carrier.partition(":")[0] for one in collected.unseen}
    # These are control flow: their words, if any, are made by their own classes.
    without = {name for name in collected.exceptions & collected.made if name[0] != "_"} - said
    assert without <= {
        "AuditError",  # made by a function that returns its subclasses
        "FilesReplacedError",
        "DiskFullError",
        "Late",
        "NotHadError",
        "UvRefusedError",
    }


def test_what_the_collector_sees() -> None:
    code = """
class BadKey(Exception):
    pass

_NEXT = "Make one."

def _bad(why: str) -> BadKey:
    return BadKey(f"A key can't be used: {why}.", next_step=_NEXT)

def check(path, many):
    what = "two names" if many else "no name"
    if many:
        raise _bad(f"it has {what} in {path}", kind="names")
    note(detail="it is checked " + "twice")
    raise BadKey(path)
"""
    found = collected_from({"a.py": code})
    assert {(message.carrier, message.text) for message in found.messages} == {
        ("BadKey", "A key can't be used: {why}."),
        ("BadKey", "Make one."),
        ("BadKey:names", "it has {what} in {path}"),
        ("BadKey:names", "two names"),
        ("BadKey:names", "no name"),
        ("detail", "it is checked "),
    }
    assert [(one.carrier, one.code) for one in found.unseen] == [("BadKey", "BadKey(path)")]


def test_a_kind_that_a_test_names_is_one_of_the_products() -> None:
    code = "\n".join(sources().values())
    named = [(path, kind) for path, tree in _tests().items() for kind in named_kinds(tree)]
    assert named
    assert [(path, kind) for path, kind in named if f'"{kind}"' not in code] == []


def test_no_assertion_compares_prose(collected: Collected) -> None:
    messages = "\n".join(
        _spaced(_COMMAND.sub(" ` ", outside_braces(message.text))) for message in collected.messages
    )
    found = [
        (path, line, text)
        for path, tree in _tests().items()
        for _, line, text in asserted_texts(tree)
        if is_prose(text, messages)
    ]
    more = [f"{path}:{line}: {text!r}" for path, line, text in found if (path, text) not in LEFT]
    assert more == [], (
        "assert the class, the kind (tests/kinds.py), a field or a value of the input:\n"
        + "\n".join(more)
    )
    assert LEFT.keys() <= {(path, text) for path, _, text in found}, "it is not left any more"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('with raises(E, match="is no key"): f()', [("match", "is no key")]),
        (
            'with raises(E, match=rf"the {a}\\.is no \\w+key"): f()',
            [("match", "the "), ("match", ".is no "), ("match", "key")],
        ),
        ('assert "is no key" in str(error.value)', [("text", "is no key")]),
        ('assert "is no key" in found.stdout', [("output", "is no key")]),
        ('assert error.problem == "is no key"', [("text", "is no key")]),
        ('assert "is no key" in names', []),
        (
            '@parametrize("a", ["is no key"])\ndef test(a):\n  with raises(E, match=a): f()',
            [("match", "a"), ("match", "is no key")],
        ),
    ],
)
def test_what_is_looked_at(code: str, found: list[tuple[str, str]]) -> None:
    assert [(what, text) for what, _, text in asserted_texts(ast.parse(code))] == found


@pytest.mark.parametrize(
    ("text", "prose"),
    [("is no key", True), ("event 3", False), ("is no door", False), ("key", False)],
)
def test_what_is_prose(text: str, prose: bool) -> None:
    assert is_prose(text, "It is no key. Name the event .") is prose


@pytest.mark.parametrize(
    ("code", "kinds"),
    [
        ('with raises(E, check=OfKind("a", "b")): f()', ["a", "b"]),
        ('assert found[0].kind == "a"', ["a"]),
        ('assert verdict.kinds == {"a"}', ["a"]),
        ('assert "a" in verdict.kinds', ["a"]),
        ('assert (ended.code, ended.kind) == (code, "a")', ["a"]),
        ('assert stored.kind == "FixStarted"', []),
    ],
)
def test_which_kinds_are_named(code: str, kinds: list[str]) -> None:
    assert [*named_kinds(ast.parse(code))] == kinds


def named_kinds(tree: ast.Module) -> Iterator[str]:
    """Yield the kinds that a test names: of errors, findings and verdicts, which are in lower case."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "OfKind":
            values: list[ast.expr] = node.args
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = node.left, node.comparators[0]
            if isinstance(left, ast.Tuple) and isinstance(right, ast.Tuple):
                pairs = [*zip(left.elts, right.elts, strict=False)]
            else:
                pairs = [(left, right)]
            values = [
                value
                for one, other in pairs
                for name, value in ((one, other), (other, one))
                if isinstance(name, ast.Attribute) and name.attr in {"kind", "kinds"}
            ]
        else:
            continue
        for value in values:
            for text in ast.walk(value):
                is_text = isinstance(text, ast.Constant) and isinstance(text.value, str)
                if is_text and _KIND.fullmatch(text.value):
                    yield text.value


def asserted_texts(tree: ast.Module) -> Iterator[tuple[str, int, str]]:
    """Yield (what is looked at, line, text) of each literal piece that a test compares with a message."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and _matches_a_parameter(node):
            for decorator in node.decorator_list:
                for given in ast.walk(decorator):
                    if isinstance(given, ast.Constant) and isinstance(given.value, str):
                        for piece in filter(str.strip, _pieces(given.value)):
                            yield "match", given.lineno, piece
        if isinstance(node, ast.Call) and _called_name(node).endswith(("raises", "warns")):
            for keyword in node.keywords:
                if keyword.arg == "match":
                    for text in _literals(keyword.value):
                        for piece in filter(str.strip, _pieces(text)):
                            yield "match", keyword.value.lineno, piece
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            if isinstance(node.ops[0], ast.In | ast.NotIn):
                text_node, looked_at = node.left, node.comparators[0]
            elif isinstance(node.ops[0], ast.Eq):
                looked_at, text_node = node.left, node.comparators[0]
            else:
                continue
            what = _LOOKED_AT.get(_last_name(looked_at))
            if what is not None:
                for text in _literals(text_node):
                    yield what, node.lineno, text


def _matches_a_parameter(function: ast.FunctionDef) -> bool:
    """Return whether one of a test's parameters is a pattern that an error has to match."""
    names = {argument.arg for argument in function.args.args}
    return any(
        keyword.arg == "match" and isinstance(keyword.value, ast.Name) and keyword.value.id in names
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
    )


def is_prose(text: str, messages: str) -> bool:
    """Return whether a text has words in a row that one of the messages has, too."""
    return len(_WORD.findall(text)) >= _PROSE_WORDS and _spaced(text).strip() in messages


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _pieces(pattern: str) -> list[str]:
    """Return what a regular expression has between its special characters, unescaped."""
    plain = re.sub(r"\\([^\w])", lambda found: f"\0{ord(found[1])};", pattern)
    pieces = re.split(r"\\\w|[.*+?|()\[\]{}^$]+", plain)
    return [re.sub(r"\0(\d+);", lambda found: chr(int(found[1])), piece) for piece in pieces]


def _literals(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        for value in node.values:
            yield from _literals(value)


def _called_name(call: ast.Call) -> str:
    """Return the name of what is called, without what it is of; empty if a call gave it."""
    return "" if isinstance(call.func, ast.Call) else _last_name(call.func)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return _last_name(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


@cache
def _tests() -> dict[str, ast.Module]:
    with no_collecting():
        return {
            path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
            for path in sorted((ROOT / "tests").rglob("*.py"))
            if path != Path(__file__)
        }
