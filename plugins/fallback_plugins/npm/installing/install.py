"""Installing is a ladder (ADR-0039): the first way that works counts, and each that did not is named with
its client's own reason. Everything runs outside the sandbox, over copies of texts alone.
"""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from fallback_plugins.npm.clients.by_lock import YARN_LOCK
from fallback_plugins.npm.clients.scratch import NEST, check_places
from fallback_plugins.npm.clients.words import own_words
from fallback_plugins.npm.installing.commands import Commands
from fallback_plugins.npm.installing.inputs import Inputs, write
from fallback_plugins.npm.installing.modules_layer import gather
from fallback_plugins.npm.installing.steps import Step, steps
from fallback_plugins.npm.locks.pnpm_lock import parse_yaml
from fallback_plugins.npm.manifests.layout import LOCKS
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

#: A user and a password in an address of a lock: what is recorded has none.
_CREDENTIALS = re.compile(r"(https?://)[^/@\s\"']+@")

#: npm's refusal of a lock ends with how it is used.
_USAGE = "; Clean install a project; Usage"


@dataclass(frozen=True)
class Earlier:
    """What a client chose before, which is kept wherever the texts admit it. ``lock``: the lock that it
    wrote at ``path``, made from the project's own, ``before``. All may be empty."""

    path: str = ""
    lock: str = ""
    before: str = ""


def install(
    context: GateContext,
    commands: Commands,
    inputs: Inputs,
    entry: Path,
    earlier: Callable[[], Earlier] = Earlier,
) -> tuple[Installed, Earlier | None]:
    """Resolve; what was installed is then in ``entry``. Return also what the client chose; None if the
    project's own lock decides.

    ``earlier`` is asked only if a client resolves. Raises ToolFailedError where no registry answers, or as
    ``earlier`` does; ToolMissingError.
    """
    try:
        check_places(inputs.files, inputs.patches)
    except RecipeError as error:  # a client would read what lies there
        return Installed(Level.METADATA, (("all of it", error.problem),)), Earlier()
    declined: list[tuple[str, str]] = []
    for step in steps(inputs, commands):
        if not isinstance(step, Step):
            declined.append(step)
            continue
        if step.where and step.where not in declined[-1][1]:
            continue
        texts = dict(step.texts)
        if not step.is_frozen and (kept := _kept(step, earlier())):
            texts[step.lock] = kept
        why, lock = _try(context, commands, step, texts, inputs, entry)
        if why is None:
            by_lock = inputs.files.lock in step.texts
            missing = (*declined, *step.left_out)
            found = Installed(step.level, missing, step=step.name, by_lock=by_lock)
            return found, None if step.is_frozen else Earlier(step.lock, lock)
        declined.append((step.name, why))
    return Installed(Level.METADATA, tuple(declined)), Earlier()


def _try(
    context: GateContext,
    commands: Commands,
    step: Step,
    texts: dict[str, str],
    inputs: Inputs,
    entry: Path,
) -> tuple[str | None, str]:
    """Why a step did not work, None: it did; and the lock that the client left."""
    with gating.scratch(context) as scratch:
        # What the texts name by a relative path is still in the scratch folder.
        project = scratch.joinpath(*("in" for _ in range(NEST)))
        write(texts, project)
        result = step.run(project / inputs.files.folder)
        elsewhere = result.refused_hosts or _asked_elsewhere(result, commands, project)
        if result.timed_out or not elsewhere:
            gating.check_reachable(step.name.partition(" ")[0], result)
        if result.ok:
            lock = ""
            with suppress(OSError):  # of no dependency none is written
                text = (project / step.lock).read_text("utf-8", "replace") if step.lock else ""
                lock = _CREDENTIALS.sub(r"\1", text)
            gather(project, step.texts, entry)
            return None, lock
        message = gating.relative_log(result, project)
        return words(result.model_copy(update={"output": message})), ""


def _kept(step: Step, earlier: Earlier) -> str:
    """A step's lock with what a client chose before: what it added then is added, all else stays."""
    lock = step.texts.get(step.lock, "")
    if not earlier.lock or earlier.path != step.lock:
        return lock
    if lock in {"", earlier.before}:
        return earlier.lock
    texts = (lock, earlier.before, earlier.lock)
    if PurePosixPath(step.lock).name == YARN_LOCK:
        ours, before, then = map(_blocks, texts)
        added = {what: it for what, it in then.items() if what not in {*ours, *before}}
        return "\n\n".join([lock.rstrip("\n"), *(f"{it}{added[it]}" for it in added)]) + "\n"
    try:
        if PurePosixPath(step.lock).name in LOCKS:
            found = [json.loads(it or "{}") for it in texts]
            _add(*found)
            return json.dumps(found[0])
        return _pnpm_lock(*texts)
    except (ValueError, AttributeError, RecursionError, RecipeError):
        return lock  # of no form that its client writes


def _pnpm_lock(*texts: str) -> str:
    import yaml

    for text in texts:
        parse_yaml(text)  # raises RecipeError for what one line can blow up
    found: list[Any] = [
        yaml.safe_load(text) for text in texts
    ]  # typed scalars: pnpm reads them back
    _add(*found)
    merged: str = yaml.safe_dump(found[0])
    return merged


def _add(ours: Any, before: Any, then: Any) -> None:
    """Add what a document gained after ``before``, unless ours has another value for it."""
    for key, value in then.items():
        if key in ours:
            if isinstance(value, dict) and isinstance(ours[key], dict):
                had = before.get(key)
                _add(ours[key], had if isinstance(had, dict) else {}, value)
        elif key not in before:
            ours[key] = value


def _blocks(text: str) -> dict[str, str]:
    """What a yarn.lock has, by descriptor as it is written (``left@^1.0.0``)."""
    found = {}
    for block in re.split(r"\n{2,}", text):
        head, _, body = block.partition(":\n")
        if body and not head.startswith(("#", " ")) and "\n" not in head:
            quote = '"' if head.startswith('"') and head.count('"') == 2 else ""
            for what in head.strip(quote or None).split(", "):
                found[f"{quote}{what}{quote}"] = f":\n{body.rstrip()}"
    return found


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
