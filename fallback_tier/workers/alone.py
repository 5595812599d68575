"""One owner of workers a state folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fallback_tier.errors import FallbackError
from fallback_tier.files.folders import writing_below
from fallback_tier.files.locks import try_hold


@contextmanager
def alone(state_dir: Path, lock: str, otherwise: FallbackError) -> Iterator[None]:
    """Hold ``lock``, a path below the state folder. Two runners, or two services, would each start as many
    fixes as the machine may run, and each would write down the end of the other's.

    Raises ``otherwise`` if another process holds it, StateFolderError.
    """
    with writing_below(state_dir):
        path = state_dir / lock
        path.parent.mkdir(parents=True, exist_ok=True)
        held = try_hold(path)
    if held is None:
        raise otherwise
    with held:
        yield
