"""What git says of the base commit."""

from contextlib import suppress
from datetime import date

from fallback_tier.gate_ports import GateContext

#: git reads its own files.
_GIT_TIMEOUT_S = 30.0


def newest_tag(context: GateContext) -> str:
    """The newest tag behind it; empty where git tells none."""
    return _git(context, "describe", "--tags", "--abbrev=0")


def day(context: GateContext) -> date | None:
    """When it was committed, where git tells a day."""
    with suppress(ValueError):
        return date.fromisoformat(_git(context, "show", "-s", "--format=%cs"))
    return None


def _git(context: GateContext, *words: str) -> str:
    """What git says of it; empty where it fails."""
    command = (*words, context.repo.base_commit)
    ran = context.clients.run("git", command, cwd=context.repo.root, timeout_s=_GIT_TIMEOUT_S)
    return ran.output.strip() if ran.ok else ""
