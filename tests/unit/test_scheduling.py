"""Tests are handed out as pytest-xdist does it, and what is over is not kept."""

from collections import OrderedDict
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling

from tests.scheduling import Scheduling

NAMES = [f"test_a.py::test[{number}]" for number in range(40)]
NAMES += [f"test_b.py::test_{number}@group" for number in range(5)]


@dataclass(eq=False)
class Worker:
    """One that keeps what it is given."""

    name: str
    given: list[int] = field(default_factory=list)
    shutting_down: bool = False

    @property
    def gateway(self) -> SimpleNamespace:
        return SimpleNamespace(id=self.name)

    def send_runtest_some(self, numbers: list[int]) -> None:
        self.given += numbers

    def shutdown(self) -> None:
        self.shutting_down = True


def begun(kind: type[LoadGroupScheduling], *workers: Worker) -> Any:
    """With every test collected by each worker, and the first ones handed out."""
    made: Any = object.__new__(kind)  # its own ``__init__`` wants a whole session of pytest
    made.numnodes, made.collection, made.log = len(workers), None, lambda *_: None
    made.workqueue, made.assigned_work, made.registered_collections = OrderedDict(), {}, {}
    made.config = SimpleNamespace(option=SimpleNamespace(loadscopereorder=True))
    for worker in workers:
        made.add_node(worker)
    for worker in workers:
        made.add_node_collection(worker, list(NAMES))
    made.schedule()
    return made


def run(scheduling: Any, *workers: Worker) -> None:
    """Each worker in its turn is done with the next test that it was given."""
    done = dict.fromkeys(workers, 0)
    while any(done[worker] < len(worker.given) for worker in workers):
        for worker in workers:
            if done[worker] < len(worker.given):
                scheduling.mark_test_complete(worker, worker.given[done[worker]])
                done[worker] += 1


def test_every_test_goes_where_it_went() -> None:
    ours, theirs = ([Worker("one"), Worker("two")] for _ in range(2))
    made = begun(Scheduling, *ours)
    run(made, *ours)
    run(begun(LoadGroupScheduling, *theirs), *theirs)
    assert [worker.given for worker in ours] == [worker.given for worker in theirs]
    assert sorted(ours[0].given + ours[1].given) == list(range(len(NAMES)))
    assert made.tests_finished
    assert list(made.assigned_work.values()) == [{}, {}]


def test_what_a_lost_worker_did_not_end_goes_to_another() -> None:
    one, two = workers = Worker("one"), Worker("two")
    made = begun(Scheduling, *workers)
    assert [NAMES[number] for number in one.given] == NAMES[40:]
    made.mark_test_complete(one, one.given[0])
    assert made.remove_node(one) == NAMES[41]
    run(made, two)
    assert sorted(two.given) == [*range(40), *range(41, 45)]


@pytest.mark.parametrize("kind", [Scheduling, LoadGroupScheduling])
def test_a_worker_that_collects_otherwise_is_not_given_anything(
    kind: type[LoadGroupScheduling],
) -> None:
    one = Worker("one")
    made = begun(kind, one)
    made.add_node(late := Worker("late"))
    made.add_node_collection(late, NAMES[1:])
    assert list(made.registered_collections) == [one]
