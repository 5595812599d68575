"""Edits of JSON text: what stays the same keeps its bytes, in whichever form a tool wrote it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_plugins.shared.jsontext import rewritten, set_value
from tests.kinds import RaisedIn

keys = st.text(max_size=4) | st.sampled_from(["a", "overrides", 'q"q', "\\", "é"])
leaves = st.text(max_size=4) | st.integers() | st.none() | st.booleans()
objects = st.dictionaries(
    keys, leaves | st.dictionaries(keys, leaves | st.lists(leaves)), max_size=4
)


@given(
    objects,
    st.lists(keys, min_size=1, max_size=3),
    st.text(max_size=5),
    st.sampled_from([None, 2, "\t"]),
    st.booleans(),
)
def test_setting_a_value_sets_it_and_nothing_else(
    document: dict[str, Any], path: list[str], value: str, indent: Any, crlf: bool
) -> None:
    text = json.dumps(document, indent=indent) + "\n"
    text = text.replace("\n", "\r\n") if crlf else text
    wanted: Any = json.loads(text)
    inner = wanted
    try:
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = value
    except (AttributeError, TypeError):
        with pytest.raises(ValueError, check=RaisedIn(set_value)):
            set_value(text, path, value)
        return
    new = set_value(text, path, value)
    assert json.loads(new) == wanted
    # Of the old text only the old value went; a head and a tail of it enclose what is new.
    head = next((i for i, (a, b) in enumerate(zip(text, new, strict=False)) if a != b), len(text))
    rest = zip(text[head:][::-1], new[head:][::-1], strict=False)
    tail = next((i for i, (a, b) in enumerate(rest) if a != b), len(text) - head)
    removed = text[head : len(text) - tail]
    assert "".join(removed.split()) in "".join(json.dumps(_old(document, path)).split())
    if crlf and indent:
        assert "\n" not in new.replace("\r\n", "")


def _old(document: Any, path: list[str]) -> Any:
    """The value that stood there; of an object that gained a member, the empty one."""
    for key in path:
        if key not in document:
            return {}
        document = document[key]
    return document


def test_a_new_object_is_indented_as_the_file_is() -> None:
    text = '{\n    "name": "a"\n}\n'
    assert set_value(text, ["overrides", "b", "c"], "1") == (
        '{\n    "name": "a",\n    "overrides": {\n        "b": {\n            "c": "1"\n'
        "        }\n    }\n}\n"
    )


@pytest.mark.parametrize("text", ["", "[]", "7", '{"a"', '{"a" 1}', "{1}"])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, check=RaisedIn(set_value)):
        set_value(text, ["a"], "1")


def test_of_two_equal_members_the_last_is_set() -> None:
    text = '{"a": {"b": "1"},  "a" :\t{"b": "1", "c": "1"}}'
    assert set_value(text, ["a", "b"], "2") == text.replace('"b": "1", "c"', '"b": "2", "c"')


def _inline(text: str) -> str:
    """Short lists on one line, as formatters write them."""
    return text.replace('[\n    "x",\n    "y"\n  ]', '["x", "y"]')


#: Ways in which tools write one document.
FORMS: dict[str, Callable[[Any], str]] = {
    "npm": lambda it: json.dumps(it, indent=2, ensure_ascii=False) + "\n",
    "npm without an end": lambda it: json.dumps(it, indent=2, ensure_ascii=False),
    "tabs": lambda it: json.dumps(it, indent="\t", ensure_ascii=False) + "\n",
    "pipenv": lambda it: json.dumps(it, indent=4, sort_keys=True) + "\n",
    "sorted, CRLF": lambda it: json.dumps(it, indent=3, sort_keys=True).replace("\n", "\r\n"),
    "one line": json.dumps,
    "minified": lambda it: json.dumps(it, separators=(",", ":")),
    "short lists": lambda it: _inline(json.dumps(it, indent=2)) + "\n",
    "byte order mark": lambda it: "\ufeff" + json.dumps(it, indent=2) + "\n\n",
}

OLD = {
    "name": "app",
    "list": ["x", "y"],
    "packages": {"": {}, "b": {"version": "1", "at": {"k": []}}, "a": {"version": "1"}},
}
NEW = {
    "name": "app",
    "list": ["x", "y"],
    "packages": {
        "": {},
        "b": {"version": "2", "at": {"k": []}, "os": ["x"], "more": {"z": "1", "c": {}}},
        "c": {"version": "1", "dev": True},
        "a": {"version": "1"},
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_a_text_keeps_its_form(form: str) -> None:
    write = FORMS[form]
    new, wanted = rewritten(write(OLD), NEW), write(NEW)
    if form == "short lists":
        wanted = wanted.replace('[\n        "x"\n      ]', '["x"]')
    assert new == wanted
    assert rewritten(write(OLD), OLD) == write(OLD)
    assert rewritten(write(NEW), OLD) == write(OLD)


def test_only_what_is_added_is_in_another_order() -> None:
    """The client writes its own order; a member that it adds comes after the one that it follows."""
    old = '{ "z" : 1,\n  "b": {},\n"a":[ 1,2 ] }'
    new = {"a": [1, 2], "c": "new", "b": {"d": 1}, "z": 1}
    assert rewritten(old, new) == '{ "z" : 1,\n  "b": {"d": 1},\n  "a":[ 1,2 ],\n  "c": "new" }'


@given(objects, objects, st.sampled_from(sorted(FORMS)))
def test_whatever_is_written_is_meant(old: Any, new: Any, form: str) -> None:
    text = rewritten(FORMS[form](old), new)
    assert json.loads(text.removeprefix("\ufeff")) == new
