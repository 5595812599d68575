"""What the tests that a patch would fail for do when they are run alone, with the patch and without.

A suite's one run says that a test failed, not why: a clock, a port, a busy machine. Run alone, a few times
in turn over fresh files of both trees, a test that the patch broke fails each time here and never there,
and the two sides have the machine of the same minutes (ADR-0078).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fallback_plugins.shared.gates.base_runs import Run
from fallback_plugins.shared.gates.reports import Report
from fallback_plugins.shared.installed import NotInstalled
from fallback_tier.gate_ports import GateContext

#: Runs of such tests, on either side. A test that fails by chance, however often, fails in the suite and in
#: all of these with the patch, and in none of these and of the suite's three runs at the base commit, in
#: less than one of 800 cases (p⁴(1-p)⁶).
ALONE_RUNS = 3

#: Tests that are run alone, at most: to blame a patch one is enough, and their names are an argument.
MAX_ALONE = 20

#: How to run these tests alone in a tree, in the gate's own time.
Alone = Callable[[Sequence[str]], Run]


@dataclass(frozen=True)
class RunAlone:
    """What tests did when run alone; the first three are disjoint, a test in none of them tells nothing."""

    #: Passed each time at the base commit, and never with the patch.
    broken: frozenset[str] = frozenset()
    #: Passed in some runs at the base commit, and in others not.
    flaky: frozenset[str] = frozenset()
    #: Passed each time at the base commit, and with the patch in some runs and not in others.
    uneven: frozenset[str] = frozenset()
    #: Passed with the patch, once or more.
    passing: frozenset[str] = frozenset()


def run_alone(context: GateContext, alone: Alone, tests: Iterable[str]) -> RunAlone | None:
    """Run tests alone, ``ALONE_RUNS`` times on either side; of more than ``MAX_ALONE`` the first.

    None: some run told nothing (no report, not in time, nothing installed). Raises what a run raises.
    """
    chosen = sorted(tests)[:MAX_ALONE]
    run = alone(chosen)
    seen: dict[bool, list[Report]] = {False: [], True: []}
    for _ in range(ALONE_RUNS):
        for patched, reports in seen.items():
            with context.worktree.fresh(patched=patched) as tree:
                one = run(context.repo.laid_out(tree))
            if isinstance(one, NotInstalled) or one.report is None or one.result.timed_out:
                return None
            reports.append(one.report)

    def which(holds: Callable[[list[bool], list[bool]], bool]) -> frozenset[str]:
        there, here = seen.values()
        return frozenset(
            test
            for test in chosen
            if holds([one.clears(test) for one in there], [one.clears(test) for one in here])
        )

    return RunAlone(
        broken=which(lambda there, here: all(there) and not any(here)),
        flaky=which(lambda there, _: any(there) and not all(there)),
        uneven=which(lambda there, here: all(there) and any(here) and not all(here)),
        passing=which(lambda _, here: any(here)),
    )
