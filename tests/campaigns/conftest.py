"""Tests in this folder are marked ``campaign``: ``make test-campaign`` runs them, ``make test`` does not.

They are the small versions of the campaigns, and the unit tests of their code.
"""

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker("campaign")
