"""What uv says of packages is read without what a repository says in it."""

import pytest

from fallback_plugins.pypi.uv_words import one_line


@pytest.mark.parametrize(
    ("output", "read"),
    [
        ("a==1\n   has\tno\n", "a==1 has no"),
        ("a{os_name != 'nt'}==1 and\nb{x\n== 'y'}", "a==1 and b"),
        ("a{os_name != 'b has no usable wheels'}==1", "a==1"),
        ("a} {b", "a} {b"),
    ],
)
def test_on_one_line_and_without_conditions(output: str, read: str) -> None:
    assert one_line(output) == read
