"""What uv has no wheel of is read from its own words."""

import pytest

from fallback_plugins.pypi.installing.building import in_words, unbuilt


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (
            "Because parsimonious==0.9.0 has no usable wheels and web3==6.0.0 depends\n      on it",
            [("parsimonious", "==0.9.0")],
        ),
        ("Because lru-dict>=1.1.6,<=1.1.8 has no usable wheels", [("lru-dict", ">=1.1.6,<=1.1.8")]),
        ("Because all versions of PyEthash have no usable wheels", [("pyethash", "")]),
        ("all of: numpy==1.10.0 numpy==1.10.3 have no usable wheels", [("numpy", "==1.10.3")]),
        (
            "a>=1 has no usable wheels and b[x]==2 has no usable wheels",
            [("b", "==2"), ("a", ">=1")],
        ),
        ("a==1 has no usable wheels; a==1 has no usable wheels", [("a", "==1")]),
        ("a==x! has no usable wheels", []),
        ("tensorflow==1.0.0 has no wheels with a matching Python ABI tag", []),
        ("a===1 has no usable wheels", [("a", "===1")]),
        (f"{'a' * 200}==1 has no usable wheels", [("a" * 200, "==1")]),
        (f"{'a' * 201}==1 has no usable wheels", []),
        (f"a{','.join(['!=1'] * 300)} has no usable wheels", []),
        ("", []),
    ],
)
def test_what_has_no_wheel(message: str, found: list[tuple[str, str]]) -> None:
    assert list(unbuilt(message)) == found


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("a", "1.0"), "a 1.0"),
        (("a", "==1.0"), "a==1.0"),
        (("a", "!=1,<2"), "a!=1,<2"),
        (("a", ""), "a"),
    ],
)
def test_what_was_not_built_is_told_as_it_is_written(asked: tuple[str, str], words: str) -> None:
    assert in_words(asked) == words
