"""What git says of the base commit."""

from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from fallback_tier.execution import ClientRunner
from fallback_tier.gate_ports import GateContext

#: git reads its own files.
_GIT_TIMEOUT_S = 30.0

#: A project whose last commit is older than this was tested with other releases than today's. Where its
#: own code is at fault, those of its day are installed: with today's, tests fail for reasons that have
#: nothing to do with the flaw.
OF_ITS_DAY_AFTER = timedelta(days=180)


def newest_tag(context: GateContext) -> str:
    """The newest tag behind it; empty where git tells none."""
    return _git_on(context, "describe", "--tags", "--abbrev=0")


def day_of_old(context: GateContext) -> str:
    """When it was committed, if that is long ago; empty where it is not, or git tells no day."""
    with suppress(ValueError):
        day = date.fromisoformat(_git_on(context, "show", "-s", "--format=%cs"))
        return str(day) if day < datetime.now(UTC).date() - OF_ITS_DAY_AFTER else ""
    return ""


def _git_on(context: GateContext, *words: str) -> str:
    return _git(context.clients, context.repo.root, *words, context.repo.base_commit)


@lru_cache
def _git(clients: ClientRunner, root: Path, *words: str) -> str:
    """What git says, asked once a run: a tag that is set in between would make the two trees differ.
    Empty where it fails."""
    ran = clients.run("git", words, cwd=root, timeout_s=_GIT_TIMEOUT_S)
    return ran.output.strip() if ran.ok else ""
