"""Installing is a ladder (ADR-0039): the first way that works counts, and each that did not is named with
its client's own reason. Everything runs outside the sandbox, over copies of texts alone.
"""

import re
from pathlib import Path

from fallback_plugins.npm.clients.npm_run import own_words
from fallback_plugins.npm.clients.scratch import NEST, check_places
from fallback_plugins.npm.installing.commands import Commands
from fallback_plugins.npm.installing.inputs import Inputs, write
from fallback_plugins.npm.installing.modules_layer import gather
from fallback_plugins.npm.installing.steps import Step, steps
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.installed import Installed, Level
from fallback_tier.errors import RecipeError
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext

#: What a step's reason repeats of its client's words.
_MAX_WORDS = 300

#: Lines in which yarn and pnpm say what is wrong.
_ERROR = re.compile(
    r"^(?:error:? |(?!WARN).*\bERR_PNPM|➤ YN(?!0000|0007|0013)\d{4}:(?! │ [+-])|\[ERR)|Error:"
)

#: npm's refusal of a lock ends with how it is used.
_USAGE = "; Clean install a project; Usage"


def install(context: GateContext, commands: Commands, inputs: Inputs, entry: Path) -> Installed:
    """Resolve; what was installed is then in ``entry``.

    Raises ToolFailedError where no registry answers, ToolMissingError.
    """
    try:
        check_places(inputs.files, inputs.patches)
    except RecipeError as error:  # a client would read what lies there
        return Installed(Level.METADATA, (("all of it", error.problem),))
    declined: list[tuple[str, str]] = []
    for step in steps(inputs, commands):
        if not isinstance(step, Step):
            declined.append(step)
            continue
        if step.where and step.where not in declined[-1][1]:
            continue
        why = _try(context, commands, step, inputs, entry)
        if why is None:
            missing = (*declined, *step.left_out)
            by_lock, of_day = inputs.files.lock in step.texts, not step.frozen
            return Installed(step.level, missing, step=step.name, of_day=of_day, by_lock=by_lock)
        declined.append((step.name, why))
    return Installed(Level.METADATA, tuple(declined), of_day=True)


def _try(
    context: GateContext, commands: Commands, step: Step, inputs: Inputs, entry: Path
) -> str | None:
    """Why a step did not work; None: it did."""
    with gating.scratch(context) as scratch:
        # What the texts name by a relative path is still in the scratch folder.
        project = scratch.joinpath(*("in" for _ in range(NEST)))
        write(step.texts, project)
        result = step.run(project / inputs.files.folder)
        elsewhere = result.refused_hosts or _asked_elsewhere(result, commands, project)
        if result.timed_out or not elsewhere:
            gating.check_reachable(step.name.partition(" ")[0], result)
        if result.ok:
            gather(project, step.texts, entry)
            return None
        message = gating.relative_log(result, project)
        return words(result.model_copy(update={"output": message}))


def _asked_elsewhere(result: CommandResult, commands: Commands, folder: Path) -> bool:
    """Does a client complain of other hosts than the registry's? A lock, or a manifest, can name any."""
    if result.ok or not (silent := gating.unreached(result.output)):
        return False
    return silent.isdisjoint(gating.hosts(commands.registry(folder)))


def words(result: CommandResult) -> str:
    """A client's own words on one line: its errors."""
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    errors = "; ".join(
        line.removeprefix("error ").removeprefix("error: ") for line in lines if _ERROR.search(line)
    )
    message = (errors or own_words(result.output)).partition(_USAGE)[0]
    return message[:_MAX_WORDS].strip(" ;.")
