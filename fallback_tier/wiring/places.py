"""Folders that a command writes to, checked before it begins: all that can't be written are named.

Otherwise each layer (the store, the keys, a cache) would fail in turn with its own message, and the user
would not learn that one folder, the home, is the cause of all.
"""

import os
import tempfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from fallback_audit.frozen import Frozen
from fallback_tier.ecosystem_rules import rules_of
from fallback_tier.errors import StateFolderError, ToolMissingError
from fallback_tier.execution import ClientRunner
from fallback_tier.wiring.configuration import Configuration
from fallback_tier.wiring.trail import RecordSettings, keys_dir

#: Timeout in seconds for a client that reports where its cache is; it only reads its configuration.
_ASK_S = 30.0


class Place(Frozen):
    """A folder that is written to. ``what`` it holds; ``moved_by``: the options and variables that name
    another. ``ask``: the words by which a client says which folder it really takes."""

    folder: Path
    what: str
    moved_by: str
    ask: tuple[str, ...] = ()


def check_places(
    configuration: Configuration, clients: ClientRunner, ecosystems: Collection[str]
) -> None:
    """Check the product's own folders. If one can't be written, raise StateFolderError, which also names
    the caches of these ecosystems' clients that can't be written: they would fail next."""
    own_places = [*_own(configuration)]
    if any(_problem(place, clients) for place in own_places):
        check([*own_places, *_caches(ecosystems, offline=configuration.settings.offline)], clients)


def check_caches(clients: ClientRunner, ecosystems: Collection[str], *, offline: bool) -> None:
    """Raise StateFolderError if a client of these ecosystems can't write its cache."""
    check(_caches(ecosystems, offline=offline), clients)


def check_keys(record: RecordSettings) -> None:
    """Raise StateFolderError if no key can be written to the folder of keys."""
    check([_keys(record)])


def check(places: Iterable[Place], clients: ClientRunner | None = None) -> None:
    """Raise StateFolderError naming every place that can't be written, why, and what moves it."""
    unwritable = [(place, why) for place in places if (why := _problem(place, clients))]
    if not unwritable:
        return
    problems = "; ".join(f"{place.folder} ({place.what}): {why}" for place, why in unwritable)
    moves = "; ".join(f"{place.what}: {place.moved_by}" for place, _ in unwritable)
    what = "A folder" if len(unwritable) == 1 else "Folders"
    raise StateFolderError(
        f"{what} that this command writes to can't be written: {problems}.",
        next_step=f"Make them writable, or name others ({moves}). HOME=DIR moves all that is not named.",
        kind="not_writable",
    )


def _own(configuration: Configuration) -> Iterator[Place]:
    yield Place(
        folder=configuration.state_dir,
        what="the state folder",
        moved_by="--state-dir DIR, or XDG_STATE_HOME",
    )
    record = configuration.record
    if record.checkpoints is not None:
        moved_by = "--checkpoints DIR, or FALLBACK_TIER_CHECKPOINTS"
        yield Place(folder=record.checkpoints, what="the checkpoints", moved_by=moved_by)
    if not _has_keys(keys_dir(record)):  # otherwise nothing has to be written there
        yield _keys(record)


def _keys(record: RecordSettings) -> Place:
    moved_by = "--keys DIR, FALLBACK_TIER_KEYS or XDG_CONFIG_HOME"
    return Place(folder=keys_dir(record), what="the keys", moved_by=moved_by)


def _has_keys(folder: Path) -> bool:
    try:
        return any(path.name.endswith("key") for path in folder.iterdir())
    except OSError:
        return False


def _caches(ecosystems: Collection[str], *, offline: bool) -> Iterator[Place]:
    """Yield the caches of these ecosystems' package clients, as they choose them by default."""
    for ecosystem in sorted(ecosystems):
        rules = rules_of(ecosystem)
        for cache in () if rules is None else rules.caches(os.environ, offline=offline):
            folder = _expanded(cache.folder)
            yield Place(folder=folder, what=cache.what, moved_by=cache.moved_by, ask=cache.ask)


def _expanded(path: str) -> Path:
    """Return a path below the home folder. Unlike ``Path.expanduser``, raise no error without a home: the
    path stays relative then."""
    return Path(os.path.expanduser(path))  # noqa: PTH111


def _problem(place: Place, clients: ClientRunner | None) -> str | None:
    """Return why a place can't be written, or None. A client is queried only if its default can't."""
    why = _unwritable(place.folder)
    if why is None or not place.ask or clients is None:
        return why
    tool, *arguments = place.ask
    try:
        answer = clients.run(tool, arguments, cwd=Path("/"), timeout_s=_ASK_S)
    except ToolMissingError:
        return None  # reported by the code that needs the client
    cache_path = answer.output.strip().rpartition("\n")[2]
    return _unwritable(Path(cache_path)) if answer.ok and cache_path.startswith("/") else why


def _unwritable(folder: Path) -> str | None:
    """Return why no file can be created in a folder, or in the nearest one above it that exists; None if
    one can. Nothing is left there."""
    if not folder.is_absolute():
        return "there is no home folder, and it is no absolute path"
    while not folder.exists() and folder.parent != folder:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.strerror or str(error)
