"""What was installed once, kept by what decides it: whoever needs the same finds it made."""

import fcntl
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from fallback_plugins.installed import Installed


class InstalledStore:
    """A folder of entries, each made once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def entry(self, key: str, make: Callable[[Path], Installed]) -> Path:
        """The entry's folder, made if it is not there; ``Installed.kept`` tells what is in it.

        Raises what ``make`` raises; nothing is kept then.
        """
        place = self._folder / key
        if place.is_dir():
            return place
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / f"{key}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not place.is_dir():
                part = Path(tempfile.mkdtemp(dir=self._folder, prefix="part-"))
                try:
                    make(part).keep(part)
                    part.rename(place)  # when it is whole: a killed run leaves no half of one
                finally:
                    shutil.rmtree(part, ignore_errors=True)
        return place
