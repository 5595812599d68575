"""Files that a user named, on a disk that fails while they are read, or is full when they are written."""

import errno
import gzip
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from fallback_audit.errors import FallbackError
from fallback_eval.retrieval.golden import Query, read_lines
from fallback_plugins.messages_api.scripted import load_script
from fallback_plugins.solved_examples.sources.release_pair import read_release
from fallback_plugins.solved_examples.store.records import lines
from fallback_tier.advisory import load_advisories
from fallback_tier.advisory.osv import load_advisory
from fallback_tier.cli.options import _content
from fallback_tier.configured import of_file
from fallback_tier.handover.folder import write_folder
from fallback_tier.handover.working_tree import write_patch
from fallback_tier.prompt.context.sources import Reader
from fallback_tier.repo import RepoContext
from tests.campaigns.hostile.audit.campaign import Ask, Tally
from tests.campaigns.hostile.audit.disk import WRITING, Disk, on_that_disk


def _repository(place: Path) -> RepoContext:
    return RepoContext(
        root=place.parent,
        base_commit="0" * 40,
        tracked_files=(place.name,),
        manifests=(),
        fix_id="fix",
        gate_transition_id="t",
    )


def _tgz() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("package/a.js"))
    return made.getvalue()


def _zip() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("a.py", "x = 1\n")
    return made.getvalue()


#: What is read → its bytes, and how it is read.
READ: Mapping[str, tuple[bytes, Callable[[Path], object]]] = {
    "advisory.json": (b"{}", load_advisory),
    "report.json": (b"{}", lambda place: load_advisories([place])),
    "gates.toml": (b"", of_file),
    "proof.py": (b"pass", _content),
    "script.json": (b"[]", load_script),
    "examples.jsonl": (b"\n", lambda place: [*lines(place)]),
    "examples.jsonl.gz": (gzip.compress(b"\n"), lambda place: [*lines(place)]),
    "release.tgz": (_tgz(), lambda place: read_release(place, lambda name: True)),
    "release.whl": (_zip(), lambda place: read_release(place, lambda name: True)),
    "source.py": (b"x = 1\n", lambda place: _repository(place).read_text(place.name)),
    "glimpsed.py": (b"x = 1\n", lambda place: _repository(place).glimpse(place.name)),
    "context.py": (b"x = 1\n", lambda place: Reader(place.parent).read(place.name)),
    "golden.jsonl": (b"\n", lambda place: [*read_lines(place, Query)]),
}

#: What is written → how.
WRITTEN: Mapping[str, Callable[[Path], object]] = {
    "fix.patch": lambda place: write_patch(place, "diff --git a/x b/x\n"),
    "report": lambda place: write_folder(place, {"a/fix.json": "{}"}),
}


@on_that_disk
def named_files(ask: Ask) -> Tally:
    """Each once untouched, then with every call failing: what was raised is counted by its code."""
    disk, tally = Disk(), Tally()
    for name, (content, read) in READ.items():
        place = ask.place / name
        place.write_bytes(content)
        _tried(read, place)
        _count(tally, disk, place, read, errno.EIO, "read")
    for name, write in WRITTEN.items():
        write(ask.place / f"good-{name}")
        _count(tally, disk, ask.place / name, write, errno.ENOSPC, WRITING)
    return tally


def _count(
    tally: Tally,
    disk: Disk,
    place: Path,
    work: Callable[[Path], object],
    error: int,
    calls: str,
) -> None:
    disk.fail(place if calls == "read" else place.parent, 1, error, again=True, calls=calls)
    raised = _tried(work, place)
    disk.fail(place, 0, 0)
    tally.cases += 1
    code = getattr(raised, "code", type(raised).__name__)
    reported = getattr(raised, "problem", "")
    whole = place.name in reported and os.strerror(error) in reported
    tally.counts[
        f"{place.name}: {code}{'' if whole else f', which says {json.dumps(reported)}'}"
    ] += 1


def _tried(work: Callable[[Path], object], place: Path) -> Exception | None:
    """What was raised. Untouched, not all of this content is fit for its reader: that doesn't matter."""
    try:
        work(place)
    except (FallbackError, OSError, ValueError, RuntimeError) as error:
        return error
    return None
