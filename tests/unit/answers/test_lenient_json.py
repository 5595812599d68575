"""The reader of typed JSON: agrees with json where json reads, forgives syntax, guesses nothing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_tier.answers.lenient_json import MAX_DEPTH, LenientJsonError, read_object

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.just(1.5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)
objects = st.dictionaries(st.text(), values, max_size=4)


@given(objects, st.booleans(), st.sampled_from([None, 2]))
def test_reads_what_json_reads(
    value: dict[str, object], ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    read, end = read_object(f"see {text} there", 4)
    assert read == value
    assert end == 4 + len(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'a': 'b'}", {"a": "b"}),
        ('{"a": [1, 2,],}', {"a": [1, 2]}),
        ('{"a": "one\ntwo\tthree"}', {"a": "one\ntwo\tthree"}),
        ('{"a": """one "quoted"\n  two"""}', {"a": 'one "quoted"\n  two'}),
        ("{'a': '''x'''}", {"a": "x"}),
        ('{"a": "", "b": \'\'}', {"a": "", "b": ""}),
        ('{"a": "it\'s"}', {"a": "it's"}),
        ("{'a': 'it\\'s'}", {"a": "it's"}),
        ('{"a": "\\ud83d\\ude00"}', {"a": "\N{GRINNING FACE}"}),
    ],
)
def test_syntax_with_one_reading_is_forgiven(text: str, value: dict[str, object]) -> None:
    assert read_object(text, 0) == (value, len(text))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (r'{"a": "\d+"}', r"\\d is no JSON escape"),
        (r'{"a": """\d"""}', "two readings"),
        ('{"a": 1, "a": 2}', "given twice"),
        ('{"a": "x', "not closed"),
        ('{"a": """x"', "not closed"),
        ('{"a": "x" + "y"}', "a comma or }"),
        ('{"a": "say "hi""}', "a comma or }"),
        ('{"a": True}', "a JSON value"),
        ('{"a": }', "a JSON value"),
        ('{"a" 1}', "colon"),
        ("{a: 1}", "quoted key"),
        ('{"a": 1', "a comma or }"),
        ('{"a": "\\', "no JSON escape"),
        ('{"a": "\\u12"}', "no JSON escape"),
        ('{"a": ' + "[" * 99, f"more than {MAX_DEPTH} levels"),
    ],
)
def test_what_has_no_single_reading_is_refused(text: str, why: str) -> None:
    with pytest.raises(LenientJsonError, match=why):
        read_object(text, 0)


def test_an_error_tells_the_line_and_the_keys_read() -> None:
    with pytest.raises(LenientJsonError, match="line 3") as caught:
        read_object('{"action":\n 1,\n"edits": oops}', 0)
    assert caught.value.keys == {"action", "edits"}
