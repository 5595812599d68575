"""What SQLite's integrity check could not read is told from what it found damaged."""

import pytest

from fallback_audit.stores.sqlite_connection import is_unread


@pytest.mark.parametrize(
    ("finding", "unread"),
    [
        ("Tree 5 page 3: unable to get the page. error code=266", True),  # SQLITE_IOERR_READ
        ("Tree 5 page 3: unable to get the page. error code=7", True),  # no memory
        ("On tree page 4 cell 2: failed to get page 9", True),
        ("Tree 5 page 3: unable to get the page. error code=11", False),  # SQLITE_CORRUPT
        ("Tree 5 page 3: btreeInitPage() returns error code 11", False),
        ("row 5 missing from index audit_trail", False),
        ("ok", False),
    ],
)
def test_a_page_that_was_not_read_is_no_damage(finding: str, unread: bool) -> None:
    assert is_unread(finding) is unread
