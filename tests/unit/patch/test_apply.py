"""A diff of ours applied in memory is what it was made from; on any other file it is an error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_tier.errors import PatchError
from fallback_tier.outcome import FileChange
from fallback_tier.patch.apply import apply_patch
from fallback_tier.patch.diff import unified_diff
from tests.kinds import OfKind

TEXT = st.lists(st.sampled_from(["a", "b", "", "-x", "+y", "\\ z", "c\r"]), max_size=12).map(
    "\n".join
)
SIDE = st.one_of(st.none(), TEXT)


@given(SIDE, SIDE)
def test_the_diff_of_a_change_gives_the_change(before: str | None, after: str | None) -> None:
    change = FileChange(path="src/a.py", before=before, after=after)
    diff = unified_diff([change])
    if diff:
        assert apply_patch(diff, {"src/a.py": before or ""}.__getitem__) == (change,)


@pytest.mark.parametrize("other", ["one\n2\nthree\n", "zero\none\ntwo\nthree\n", "", "one\n"])
def test_another_file_is_refused(other: str) -> None:
    change = FileChange(path="a.py", before="one\ntwo\nthree\n", after="one\nTWO\nthree\n")
    with pytest.raises(PatchError, check=OfKind("another_base")):
        apply_patch(unified_diff([change]), lambda path: other)
