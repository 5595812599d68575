"""The reader of typed JSON: agrees with json where json reads, forgives syntax, guesses nothing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_tier.answers.lenient_json import LenientJsonError, read_object

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
    ("text", "kind"),
    [
        (r'{"a": "\d+"}', "bad_escape"),
        (r'{"a": """\d"""}', "two_readings"),
        ('{"a": 1, "a": 2}', "duplicate_key"),
        ('{"a": "x', "not_closed"),
        ('{"a": """x"', "not_closed"),
        ('{"a": "x" + "y"}', "no_comma"),
        ('{"a": "say "hi""}', "no_comma"),
        ('{"a": True}', "no_value"),
        ('{"a": }', "no_value"),
        ('{"a" 1}', "no_colon"),
        ("{a: 1}", "no_key"),
        ('{"a": 1', "no_comma"),
        ('{"a": "\\', "bad_escape"),
        ('{"a": "\\u12"}', "bad_escape"),
        ('{"a": ' + "[" * 99, "too_deep"),
    ],
)
def test_what_has_no_single_reading_is_refused(text: str, kind: str) -> None:
    with pytest.raises(LenientJsonError) as caught:
        read_object(text, 0)
    assert caught.value.kind == kind


def test_an_error_tells_the_line_and_the_keys_read() -> None:
    with pytest.raises(LenientJsonError, match="line 3") as caught:
        read_object('{"action":\n 1,\n"edits": oops}', 0)
    assert caught.value.keys == {"action", "edits"}
