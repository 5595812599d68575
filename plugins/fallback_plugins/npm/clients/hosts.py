"""Keeps npm, yarn and pnpm from hosts that only a repository, or a package, names (ADR-0096)."""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from fallback_tier.hosts import Hosts


def wall(hosts: Hosts, _cwd: Path, _args: Sequence[str], report: Path) -> Mapping[str, str]:
    """As ``ecosystem_rules.Wall``: node loads ``hosts.cjs`` before anything else."""
    code = files(__package__).joinpath("hosts.cjs")
    given = {
        "allowed": sorted(hosts.allowed),
        "proxies": sorted(hosts.proxies),
        "report": str(report),
    }
    loader = report.with_name("hosts.cjs")
    loader.write_text(f"require({json.dumps(str(code))})({json.dumps(given)});\n", encoding="utf-8")
    return {"NODE_OPTIONS": f"--require {json.dumps(str(loader))}"}
