"""Our plan for a big lock, and the parsing of that lock alone: each in a process of its own.

A plan begins with the advisories in memory and the files on disk: the bundle is made, the lock read and
every package held against it. Nothing is kept from one plan to the next.
"""

import json
import resource
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from big_lock import KINDS, advisories

Prepared = tuple[Callable[[], None], Callable[[], Mapping[str, Any]]]


def prepare(place: Path, side: str, ecosystem: str) -> Prepared:
    """``side``: "plan" (ours) or "parse" (the lock alone)."""
    folder = place / f"{side}-{ecosystem}"
    folder.mkdir()
    lock = folder / KINDS[ecosystem](folder)
    return _parse(lock) if side == "parse" else _plan(lock, ecosystem)


def _parse(lock: Path) -> Prepared:
    loads = tomllib.loads if lock.suffix == ".lock" else json.loads

    def parse() -> None:
        loads(lock.read_text())

    return parse, lambda: {"lock_bytes": lock.stat().st_size}


def _plan(lock: Path, ecosystem: str) -> Prepared:
    from fallback_plugins.npm.locks import lockfile
    from fallback_plugins.npm.manifests import specs
    from fallback_tier.advisory import bundle, load_advisories, sort_key
    from fallback_tier.advisory.versions import is_prerelease
    from fallback_tier.repo import RepoContext

    records = lock.parent.with_suffix(".advisories")
    affected = advisories(records, ecosystem)
    start = time.perf_counter()
    loaded = load_advisories([records]).advisories
    facts: dict[str, Any] = {"load_advisories_s": time.perf_counter() - start}
    plugin = _plugin(ecosystem)
    caches = [sort_key, is_prerelease, specs.admits, specs._range, specs._version, lockfile._parsed]
    files = tuple(sorted(path.name for path in lock.parent.iterdir()))

    def plan() -> None:
        for cache in caches:
            cache.cache_clear()
        repo = RepoContext(
            root=lock.parent,
            base_commit="0" * 40,
            tracked_files=files,
            manifests=files,
            fix_id="fix",
            gate_transition_id="gate",
        )
        outline = plugin.outline(bundle(loaded), repo)
        planned = {item.package for item in (*outline.moves, *outline.left)}
        if len(planned) != affected:
            raise SystemExit(f"{len(planned)} packages were planned, {affected} are affected")
        facts["moves"], facts["left"] = len(outline.moves), len(outline.left)

    def report() -> Mapping[str, Any]:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {**facts, "affected": affected, "peak_mib": peak // 1024}

    return plan, report


def _plugin(ecosystem: str) -> Any:
    if ecosystem == "npm":
        from fallback_plugins.npm import build_ecosystem
    else:
        from fallback_plugins.pypi import build_ecosystem
    # An outline runs no client.
    return build_ecosystem(None)  # type: ignore[arg-type]
