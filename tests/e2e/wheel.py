"""The wheel, built offline from this checkout and installed where nothing of the checkout is seen."""

import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
BIN = Path(sys.prefix) / "bin"


@dataclass(frozen=True)
class Installed:
    """A virtual environment with our wheel in it; the dependencies are those of the lock."""

    wheel: Path
    prefix: Path

    @property
    def script(self) -> Path:
        return self.prefix / "bin" / "fallback-tier"

    @property
    def python(self) -> Path:
        return self.prefix / "bin" / "python"

    @property
    def packages(self) -> Path:
        version = f"python3.{sys.version_info.minor}"
        return self.prefix / "lib" / version / "site-packages"


def build_wheel(place: Path) -> Path:
    """Build with the locked hatchling; no build isolation, so nothing is downloaded."""
    subprocess.run(
        [BIN / "hatchling", "build", "-t", "wheel", "-d", place],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    (wheel,) = place.glob("*.whl")
    return wheel


def install(wheel: Path, prefix: Path) -> Installed:
    """A fresh environment; the locked packages are read from the environment of the tests.

    A path in a .pth file is put on sys.path, but .pth files below it are not read: the editable
    install of this checkout stays out of sight.
    """
    uv = [BIN / "uv", "--quiet", "--offline", "--no-cache"]
    subprocess.run([*uv, "venv", "--python", sys.executable, prefix], check=True)
    command = ["pip", "install", "--no-deps", "--python", prefix / "bin" / "python", wheel]
    subprocess.run([*uv, *command], check=True)
    installed = Installed(wheel, prefix)
    locked = sysconfig.get_paths()["purelib"]
    (installed.packages / "locked.pth").write_text(f"{locked}\n")
    return installed


def installed_once(place: Path) -> Installed:
    """As ``install``, unless it stands in ``place`` already. For one at a time."""
    prefix, whole = place / "environment", place / "whole"
    if whole.exists():
        (wheel,) = (place / "dist").glob("*.whl")
        return Installed(wheel, prefix)
    shutil.rmtree(place, ignore_errors=True)  # whoever made it was killed
    made = install(build_wheel(place / "dist"), prefix)
    whole.touch()
    return made
