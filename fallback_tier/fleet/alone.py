"""One ``fleet run`` a state folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fallback_tier.files.folders import writing_below
from fallback_tier.files.locks import try_hold
from fallback_tier.fleet.refusals import CampaignError


@contextmanager
def alone(state_dir: Path) -> Iterator[None]:
    """One runner a state folder: two would each start as many fixes as the machine may run.

    Raises CampaignError, StateFolderError.
    """
    with writing_below(state_dir):
        path = state_dir / "fleet" / "run.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = try_hold(path)
    if lock is None:
        raise CampaignError(
            f"Another `fleet run` is at work in {state_dir}.",
            next_step="Watch it with `fleet status`, or wait for its end.",
            kind="another_run",
        )
    with lock:
        yield
