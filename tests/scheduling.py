"""Tests go to workers as by ``--dist loadgroup``, in steps that do not grow with the suite.

pytest-xdist 3.8 keeps every test that is over and counts them all again at each end, and looks for each
test by comparing names: 7 CPU s for 14,000 tests, in the one process that all workers wait for.
"""

from collections.abc import Sequence
from typing import SupportsIndex

from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController


class Scheduling(LoadGroupScheduling):
    """As its base, which it hands out tests like."""

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        super().add_node_collection(node, collection)
        if node in self.registered_collections:
            self.registered_collections[node] = _Numbered(collection)

    def mark_test_complete(
        self, node: WorkerController, item_index: int, duration: float = 0
    ) -> None:
        name = self.registered_collections[node][item_index]
        super().mark_test_complete(node, item_index, duration)
        assigned, group = self.assigned_work[node], self._split_scope(name)
        if all(assigned[group].values()):
            del assigned[group]


class _Numbered(list[str]):
    """A list that knows where each of its names stands."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self._numbers = {name: number for number, name in enumerate(names)}

    def index(self, value: str, start: SupportsIndex = 0, stop: SupportsIndex = 0, /) -> int:
        """Of the whole list, whatever the bounds."""
        return self._numbers[value]
