"""A new entry of a poetry.lock, as the Poetry that wrote the lock would have written it."""

import re
from collections.abc import Collection

from fallback_plugins.pypi.poetry.lock import PoetryLock, in_plain_lines
from fallback_plugins.pypi.poetry.render import with_release
from fallback_plugins.pypi.resolving.scratch_lock import Release
from fallback_plugins.pypi.resolving.wheel_metadata import Metadata

#: The first format in which an entry says which groups need it.
_WITH_GROUPS = "2.1"

_FILES_KEY = re.compile(r'^"?(?P<name>[A-Za-z0-9][\w.-]*)"? = \[', re.MULTILINE)
_FILES_TABLE = "[metadata.files]\n"


def with_entry(
    lock: PoetryLock, release: Release, metadata: Metadata, extras: Collection[str] = ()
) -> PoetryLock:
    """The lock with one more package. Who needs it is left open (``poetry_needs``). Raises RecipeError."""
    bare = in_plain_lines(lock, lambda plain: _with_bare_entry(plain, release.name))
    return with_release(bare, release, metadata, extras)


def _with_bare_entry(lock: PoetryLock, name: str) -> PoetryLock:
    """An entry of no release, in the form of the lock's others."""
    category = any("category" in table for table in lock.packages)
    apart = _FILES_TABLE in lock.text
    lines = [
        "[[package]]",
        f'name = "{name}"',
        'version = "0"',
        'description = ""',
        *(['category = "main"'] if category else []),
        "optional = false",
        'python-versions = "*"',
        *(['groups = ["main"]'] if lock.format == _WITH_GROUPS else []),
        *([] if apart else ["files = []"]),
    ]
    lock = lock.with_new_block(name, "".join(f"{line}\n" for line in lines))
    return _with_bare_files(lock, name) if apart else lock


def _with_bare_files(lock: PoetryLock, name: str) -> PoetryLock:
    """Format 1.1: the files of all packages stand in one table, in the order of the names."""
    start = lock.text.index(_FILES_TABLE) + len(_FILES_TABLE)
    behind = [key.start() for key in _FILES_KEY.finditer(lock.text, start) if key["name"] > name]
    place = behind[0] if behind else len(lock.text)
    return PoetryLock(lock.path, f"{lock.text[:place]}{name} = []\n{lock.text[place:]}")
