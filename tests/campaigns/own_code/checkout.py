"""A case's repository at the flaw's commit, as somebody who cloned it has it; its advisory; its proof."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fallback_tier.advisory import compare_versions
from tests.campaigns.measuring.clones import clone, copy, git
from tests.campaigns.measuring.proof_end import END, is_bare, saying_its_end
from tests.campaigns.own_code.cases import PROOFS, Case, Record

#: A bound as npm's data writes it.
_FIXED = re.compile(r"(?:>=\s*|v)?(?P<version>\d+(?:\.\d+)*(?:[-.+][0-9A-Za-z.+-]+)?)")


@dataclass(frozen=True)
class Checkout:
    """A clean working tree at the flaw's commit. ``fix_commit`` may be missing from what was cloned.

    ``absent``: files that the clone lists and does not hold (a mirror without large ones). Then one commit
    of ours, which takes them away, stands on the flaw's.
    """

    root: Path
    fix_commit: str
    absent: tuple[str, ...] = ()

    @cached_property
    def tracked(self) -> tuple[str, ...]:
        return tuple(filter(None, git(self.root, "ls-files", "-z").decode().split("\0")))

    def at_fix(self, path: str) -> bytes | None:
        """A file's content in the fix's commit; None where it has none, or isn't there."""
        try:
            return git(self.root, "show", f"{self.fix_commit}:{path}")
        except RuntimeError:
            return None

    def copy(self, place: Path) -> "Checkout":
        """Another clean working tree of the same commit."""
        return Checkout(copy(self.root, place), self.fix_commit, self.absent)


def check_out(case: Case, folder: Path, clones: Path | None) -> Checkout:
    """The repository in ``folder``, in a folder of its own name. Raises RuntimeError.

    From a local clone where there is one, else from where the public has it; the remote is the public
    one in either case.
    """
    root, absent = clone(case.repo, case.commit, folder, clones)
    return Checkout(root, case.fix_commit, absent)


def advisory_of(record: Record) -> dict[str, Any]:
    """The record as OSV: what a scanner would hand to the command."""
    return {
        "id": record.id,
        "modified": "2026-01-01T00:00:00Z",
        "aliases": list(record.aliases),
        "summary": record.summary or "",
        "details": record.details or "",
        "affected": [
            entry for reported in record.affected or ({},) for entry in _affected(reported, record)
        ],
        "database_specific": {"cwe_ids": list(record.cwe_ids)},
    }


def _affected(reported: Mapping[str, Any], record: Record) -> list[dict[str, Any]]:
    if "package" in reported and reported.get("ranges"):
        package = {"ecosystem": record.ecosystem, "name": reported["package"]}
        return [{"package": package, "ranges": reported["ranges"]}]
    kind = "SEMVER" if record.ecosystem == "npm" else "ECOSYSTEM"
    fixed = _fixed(reported, record.ecosystem)
    events = [{"introduced": "0"}, *([{"fixed": fixed}] if fixed else [])]
    return [
        {
            "package": {"ecosystem": record.ecosystem, "name": name},
            "ranges": [{"type": kind, "events": events}],
        }
        for name in record.packages
    ]


def _fixed(reported: Mapping[str, Any], ecosystem: str) -> str | None:
    """The first fixed version; None where it is not told, or other facts speak against it."""
    found = _FIXED.fullmatch((reported.get("fixed_version") or "").strip())
    if found is None:
        return None
    fixed, vulnerable = found["version"], reported.get("vulnerable_version")
    try:
        if vulnerable and compare_versions(ecosystem, vulnerable, fixed) >= 0:
            return None  # another release line: the bound is not the only one
    except ValueError:
        return None
    return fixed


def proof_arguments(case: Case, checkout: Checkout, folder: Path) -> list[str | Path]:
    """``--proof`` and its files, these written to ``folder``. Raises RuntimeError."""
    given: list[str | Path] = ["--proof", case.proof]
    files, words = proof_files(case, checkout), case.command
    if is_bare(words) and words[1] in case.ours:
        files[words[1]] = saying_its_end(words[0], files[words[1]])
        given += ["--proof-end", END]
    for number, (place, content) in enumerate(files.items()):
        source = folder / f"proof-{number}{Path(place).suffix}"
        source.write_bytes(content)
        given += ["--proof-file", f"{source}={place}"]
    return given


def proof_files(case: Case, checkout: Checkout) -> dict[str, bytes]:
    """Place → content. Raises RuntimeError where upstream has no such file."""
    found = {place: (PROOFS / name).read_bytes() for place, name in case.ours.items()}
    for place, path in case.upstream.items():
        content = checkout.at_fix(path)
        if content is None:
            raise RuntimeError(f"{case.name}: {path} is not in {case.fix_commit}")
        found[place] = content
    return found


def write_advisory(record: Record, folder: Path) -> Path:
    """The advisory as a file."""
    place = folder / "advisory.json"
    place.write_text(json.dumps(advisory_of(record)), encoding="utf-8")
    return place
