"""Several advisories: planned together, one gate transition an ecosystem, delivered once all is proved.

By recipe only: a model's plan raises one dependency, so a model is asked for one advisory at a time.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from fallback_tier.advisory import AdvisorySet
from fallback_tier.cli import exit_codes
from fallback_tier.cli.fix import document, exit_code, report_end, report_patch, report_record
from fallback_tier.cli.handover import Fixed, Landed, hand_over, setup_of
from fallback_tier.cli.output import print_json
from fallback_tier.cli.plan import check_clients, show_rest
from fallback_tier.cli.plan import exit_code as plan_exit_code
from fallback_tier.cli.progress import FixProgress, PlanProgress
from fallback_tier.cli.remediation import line, safe, show_left
from fallback_tier.gates.journal.inputs import Setup
from fallback_tier.gates.result import FixResult, WithPatch
from fallback_tier.handover.delivery import deliver
from fallback_tier.installed import tags_of
from fallback_tier.outcome import Applied
from fallback_tier.planning import EcosystemPlan, RemediationPlan, plan
from fallback_tier.repo import RepoContext
from fallback_tier.wiring import Services


@dataclass(frozen=True)
class Part:
    """One ecosystem's fix, and how its gate transition ended. ``held_back``: why a proved patch is not
    delivered."""

    planned: EcosystemPlan
    result: FixResult
    held_back: str | None = None

    @property
    def application(self) -> Applied | None:
        """The patch to deliver, if there is one."""
        return None if self.fixed is None else self.fixed[0].application

    @property
    def fixed(self) -> Fixed | None:
        """The fix that is handed over with it."""
        if isinstance(self.result, WithPatch) and self.held_back is None:
            return self.result, self.planned.advisory
        return None


def fix_several(
    given: AdvisorySet, repo: RepoContext, services: Services, arguments: argparse.Namespace
) -> int:
    """Plan, prove each ecosystem's patch on the base commit, deliver all of them or none in part."""
    ids = [advisory.id for advisory in given.advisories]
    setup = setup_of(arguments, ids, repo, services.clients)
    has_model = services.has_model
    services = services.recipes_only()
    if given.advisories:
        check_clients(given, repo, services.clients, services.plugins)
        services.sandbox()  # where there is none, that is said before the long work
    errors = Console(stderr=True, quiet=arguments.json)
    with PlanProgress(errors) as progress:
        tags = tags_of(repo, services.clients)
        planned = plan(given, repo, services.plugins, tags=tags, observe=progress)
    proved = [Part(fix, _prove(fix, repo, services, errors)) for fix in planned.fixes]
    done = held_back(proved)
    patch = _merged([part.application for part in done if part.application is not None])
    landed = Landed()
    if patch is not None:
        landed = hand_over(
            [fixed for part in done if (fixed := part.fixed)], patch, repo, services, setup, deliver
        )
    code = combined_exit_code(planned, done)
    if arguments.json:
        print_json(_document(planned, done, landed, code=code))
    else:
        console = Console()
        _report(planned, done, console)
        if patch is not None:
            report_patch(patch, console, landed)
        _next_steps(planned, done, console, has_model=has_model)
    return code


def _prove(fix: EcosystemPlan, repo: RepoContext, services: Services, errors: Console) -> FixResult:
    inputs = services.inputs_on(repo, fix.advisory)
    with FixProgress(errors) as progress:
        runner = services.gate_runner(
            fix.advisory, progress, Setup(several=True), repo=repo, tell=progress.tell
        )
        return runner.run(inputs.advisory, inputs.repo_ctx, inputs.recipe_selection)


def held_back(parts: Sequence[Part]) -> list[Part]:
    """The parts, and of the proved ones why some may not be delivered.

    A file that two patches change was proved in neither's final form; and half a fix is none: an advisory
    of two ecosystems is delivered in both or not at all.
    """
    done: list[Part] = []
    for part in parts:
        done = [*done, _unless_touched(part, done)]
    while True:
        broken = {
            name: part.planned.ecosystem
            for part in done
            if part.application is None
            for name in part.planned.advisory_ids
        }
        now = [_unless_half(part, broken) for part in done]
        if now == done:
            return done
        done = now


def _unless_touched(part: Part, earlier: Sequence[Part]) -> Part:
    for other in earlier:
        if part.application is None or other.application is None:
            continue
        both = sorted(set(part.application.files) & set(other.application.files))
        if both:
            reason = (
                f"The {other.planned.ecosystem} patch changes {both[0]} too; run fix again for "
                f"{part.planned.ecosystem} once that one is committed."
            )
            return Part(part.planned, part.result, reason)
    return part


def _unless_half(part: Part, broken: dict[str, str]) -> Part:
    if part.application is None:
        return part
    for name in part.planned.advisory_ids:
        if name in broken:
            reason = f"{name} is not fixed in {broken[name]}, and half a fix is none."
            return Part(part.planned, part.result, reason)
    return part


def _merged(applications: Sequence[Applied]) -> Applied | None:
    """One patch of several that touch different files, so that git applies all of it or nothing."""
    if not applications:
        return None
    files = sorted(path for application in applications for path in application.files)
    diff = "".join(application.diff for application in applications)
    return applications[0].model_copy(update={"diff": diff, "files": tuple(files)})


def combined_exit_code(planned: RemediationPlan, parts: Sequence[Part]) -> int:
    """The worst of the parts': a missing tool, then a person's decision, then what is left, then what is
    not shown."""
    codes = {exit_code(part.result) for part in parts} | {plan_exit_code(planned)}
    if any(part.application is None for part in parts):
        # Planned and not done, whatever the reason.
        codes.add(exit_codes.REFUSED)
    order = (
        exit_codes.ENVIRONMENT,
        exit_codes.ESCALATED,
        exit_codes.REFUSED,
        exit_codes.PATCHED,
        exit_codes.OK,
    )
    return next((code for code in order if code in codes), exit_codes.NOT_AFFECTED)


def _document(
    planned: RemediationPlan, parts: Sequence[Part], landed: Landed, *, code: int
) -> dict[str, object]:
    said = planned.model_dump(mode="json", exclude={"fixes", "resolved"})
    fixes = [
        {
            **document(part.result),
            "ecosystem": part.planned.ecosystem,
            "advisory_ids": part.planned.advisory_ids,
            "delivered": landed.delivered and part.application is not None,
            "held_back": part.held_back,
        }
        for part in parts
    ]
    return {**said, "fixes": fixes, **landed.document(), "exit_code": code}


def _report(planned: RemediationPlan, parts: Sequence[Part], console: Console) -> None:
    for part in parts:
        report_end(part.result, console)
        ids = safe(", ".join(part.planned.advisory_ids))
        line(console, f"  {part.planned.ecosystem}, {len(part.planned.advisory_ids)} in all: {ids}")
        if part.held_back is not None:
            line(console, f"  [yellow]not delivered[/]: {safe(part.held_back)}")
        report_record(part.result, console)
    show_left(console, planned.left)
    show_rest(console, planned)
    if not (parts or planned.left or planned.findings):
        line(console, "[bold]not affected[/]  there is nothing to fix")


def _next_steps(
    planned: RemediationPlan, parts: Sequence[Part], console: Console, *, has_model: bool
) -> None:
    failed = any(not isinstance(part.result, WithPatch) for part in parts)
    if has_model and (planned.left or failed):
        line(
            console,
            "  next: a model is asked for one advisory at a time: fallback-tier fix REPO --advisory THAT",
        )
