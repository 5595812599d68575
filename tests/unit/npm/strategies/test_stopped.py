"""A plan whose clients are stopped, at each of their runs in turn: with the real npm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from fallback_audit.vocabulary import LadderStep
from fallback_plugins.npm import build_ecosystem
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.npm_client import NpmClient
from fallback_plugins.npm.strategies.parents import Changes, ParentBump
from fallback_plugins.npm.strategies.resolving import Answers, NpmPosition, Resolver, judge_of
from fallback_plugins.npm.strategies.targets import Targets
from fallback_plugins.shared.ladder import Reached, Strategy
from fallback_tier.advisory import Advisory, AdvisorySet
from fallback_tier.errors import StoppedError
from fallback_tier.execution import ClientRunner, CommandResult
from fallback_tier.planning import RemediationPlan, divisible_plan
from tests.registry import Universe
from tests.unit.npm.world import World, at, bad, project, world


@dataclass(eq=False)
class Stopping:
    """Clients that make so many runs, and then no more."""

    inner: ClientRunner
    left: int
    stopped: bool = False

    def run(
        self,
        tool: str,
        args: Sequence[str],
        *,
        cwd: Path,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        if self.left == 0:
            self.stopped = True
            raise StoppedError("Not resolved within 5 s.", next_step="More.", kind="time_limit")
        self.left -= 1
        return self.inner.run(tool, args, cwd=cwd, timeout_s=timeout_s, env=env)


#: Of leaf a refresh is enough, pinned needs another release of its parent, and stuck has no fix.
UNIVERSE = (
    Universe()
    .npm("leaf", "1.0.0")
    .npm("leaf", "1.2.0")
    .npm("pinned", "1.0.0")
    .npm("pinned", "1.2.0")
    .npm("mid", "1.0.0", {"pinned": "1.0.0"})
    .npm("mid", "2.0.0", {"pinned": "1.2.0"})
    .npm("stuck", "1.0.0")
)
FILES = project(
    {"leaf": "^1.0.0", "mid": "^1.0.0", "stuck": "^1.0.0"},
    {
        "leaf": at("1.0.0"),
        "mid": at("1.0.0", pinned="1.0.0"),
        "pinned": at("1.0.0"),
        "stuck": at("1.0.0"),
    },
)
RECORDS = tuple(
    Advisory.model_validate({**dict(bad(name, ("0", end))), "id": f"GHSA-{name}"})
    for name, end in (("leaf", "1.2.0"), ("pinned", "1.2.0"), ("stuck", None))
)


def planned(
    here: World, runs: int, files: Mapping[str, str] = FILES
) -> tuple[RemediationPlan, bool]:
    """Return the plan with so many runs of clients, and whether more were wanted."""
    clients = Stopping(here.clients, runs)
    plugins = {"npm": build_ecosystem(clients)}
    repo = here.repo(files)
    plan = divisible_plan(AdvisorySet(advisories=RECORDS), repo, plugins).plan
    return plan, clients.stopped


def outcomes(plan: RemediationPlan) -> dict[str, str]:
    """Return how each advisory ended: its new version, refused, or not resolved."""
    found = dict.fromkeys(plan.not_affected, "not affected")
    for item in plan.left:
        for name in item.advisory_ids:
            found[name] = "not resolved" if item.is_not_resolved else "refused"
    for fix in plan.fixes:
        for move in fix.moves:
            found |= dict.fromkeys(move.advisory_ids, f"{move.package} {move.after}")
    return found


LOCK_ALONE = {path: text for path, text in FILES.items() if path != "package.json"}


@pytest.mark.parametrize(("files", "pinned"), [(FILES, "pinned 1.2.0"), (LOCK_ALONE, "refused")])
def test_wherever_clients_are_stopped_an_answer_is_the_whole_plans_or_missing(
    tmp_path: Path, files: Mapping[str, str], pinned: str
) -> None:
    with world(UNIVERSE, tmp_path) as here:
        whole, stopped = planned(here, 1000, files)
        assert not stopped
        expected = outcomes(whole)
        assert expected == {
            "GHSA-leaf": "leaf 1.2.0",
            "GHSA-pinned": pinned,
            "GHSA-stuck": "refused",
        }
        seen = []
        for runs in range(100):
            plan, stopped = planned(here, runs, files)
            if not stopped:
                break
            found = outcomes(plan)
            assert found.keys() == expected.keys(), runs
            for name, outcome in found.items():
                assert outcome in (expected[name], "not resolved"), (runs, name, outcome)
            seen.append(found["GHSA-leaf"])
        assert seen[0] == "not resolved"
        # Before the whole plan was made; a lock alone takes one run.
        assert "leaf 1.2.0" in seen or files is LOCK_ALONE
        assert outcomes(plan) == expected


class Unchanged(Answers):
    """A client that finds nothing to change."""

    def once(self, question: Sequence[object], files: Files, ask: object) -> Files:
        return files


def test_a_parent_bump_is_stopped_with_the_nearer_steps_in_it(tmp_path: Path) -> None:
    """It would go on with what they reached, and call that its own failure."""

    def stop(_at: NpmPosition, _packages: tuple[str, ...]) -> Reached[Files]:
        raise StoppedError("Not resolved within 5 s.", next_step="More.", kind="time_limit")

    with world(UNIVERSE, tmp_path) as here:
        client, record = NpmClient(here.clients), RECORDS[1]
        lock = "package-lock.json"
        files = Files(".", {"package.json": FILES["package.json"]}, lock, FILES[lock])
        resolver = Resolver(client, answers=Unchanged())
        nearer = [Strategy(LadderStep.LOCK_REFRESH, stop)]
        parents = ParentBump(resolver, Targets(record, None), judge_of(record), nearer)
        with pytest.raises(StoppedError):
            parents._changed(resolver.position(files), Changes())
