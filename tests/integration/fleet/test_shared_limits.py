"""What a provider allows, shared by real processes on one store: first come, first served."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from fallback_tier.fleet.store.store import open_store
from fallback_tier.fleet.store_limiter import ProviderLimits, StoreLimiter
from tests.waiting import PATIENCE_S, becomes

#: Small calls of so many processes at once take all that comes back.
PROCESSES, SMALL, LARGE = 4, 500, 5_000
LIMITS = ProviderLimits(name="provider", tokens_per_minute=60_000)

#: Each grant is a line. Arguments: the state folder, the list's URL or "", tokens, how often.
CALLER = f"""
import sys
from pathlib import Path
from fallback_tier.fleet.store_limiter import StoreLimiter
from fallback_tier.fleet.store_limiter import ProviderLimits
from fallback_tier.fleet.store.store import open_store

place, url, tokens, times = sys.argv[1:]
with open_store(Path(place), url or None) as store:
    limiter = StoreLimiter(store.tables, ProviderLimits.model_validate_json({LIMITS.model_dump_json()!r}))
    for _ in range(int(times)):
        limiter.take(int(tokens))
        print(tokens, flush=True)
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_large_call_has_its_turn_among_small_ones(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else ""
    with ExitStack() as stack:
        store = stack.enter_context(open_store(tmp_path, url or None))
        StoreLimiter(store.tables, LIMITS).take(60_000)  # nothing is left

        def turns(tokens: int) -> int:
            with store.tables.reading() as session:
                sql = "SELECT number FROM turns WHERE tokens = ?"
                return len(session.rows(sql, (tokens,)))

        lines = tmp_path / "granted"
        for _ in range(PROCESSES):
            stack.enter_context(calling(tmp_path, url, SMALL, 10_000, lines))
        becomes(lambda: granted(lines, SMALL) > PROCESSES, "small calls have their turns")
        stack.enter_context(calling(tmp_path, url, LARGE, 1, lines))
        becomes(lambda: turns(LARGE) == 1, "the large one waits")
        with lines.open("a") as file:
            file.write("it waits\n")
        becomes(lambda: granted(lines, LARGE) == 1, "the large one has its turn")
        between = lines.read_text().partition("it waits\n")[2].partition(f"{LARGE}\n")[0]
        assert len(between.splitlines()) <= 2 * PROCESSES  # those that waited before it
        then = granted(lines, SMALL)
        becomes(lambda: granted(lines, SMALL) > then, "the small ones go on")


def granted(lines: Path, tokens: int) -> int:
    return lines.read_text().splitlines().count(str(tokens))


@contextmanager
def calling(place: Path, url: str, tokens: int, times: int, lines: Path) -> Iterator[None]:
    """A process of its own, ended at the end."""
    words = [sys.executable, "-c", CALLER, str(place), url, str(tokens), str(times)]
    with lines.open("a") as file, subprocess.Popen(words, stdout=file) as process:
        try:
            yield
        finally:
            process.kill()
            process.wait(PATIENCE_S)
