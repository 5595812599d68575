"""Small repositories and advisories for the recipe tests, and clients that play npm or uv."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fallback_tier.advisory import Advisory, parse_advisory
from fallback_tier.execution import CommandResult
from fallback_tier.outcome import NotApplicable, RecipeResult, Selected
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import RepoContext
from fallback_tier.sandbox.clients import SubprocessClients


def advisory(
    ecosystem: str,
    package: str,
    intervals: Sequence[tuple[str, str | None]] = (),
    *,
    ranges: Sequence[Mapping[str, Any]] = (),
    versions: Sequence[str] = (),
) -> Advisory:
    """An OSV record about one package; ``intervals``: (introduced, fixed)."""
    own = [
        {
            "type": "SEMVER" if ecosystem == "npm" else "ECOSYSTEM",
            "events": [{"introduced": start}, *([{"fixed": end}] if end else [])],
        }
        for start, end in intervals
    ]
    record = {
        "id": "OSV-TEST-1",
        "summary": "A test record.",
        "affected": [
            {
                "package": {"ecosystem": ecosystem, "name": package},
                "ranges": [*own, *ranges],
                "versions": list(versions),
            }
        ],
    }
    return parse_advisory(json.dumps(record).encode(), "test")


def repository(root: Path, files: Mapping[str, str]) -> RepoContext:
    """The files written, every one tracked; line ends as given."""
    for path, text in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode())
    return tracked(root)


def tracked(root: Path) -> RepoContext:
    """A context over everything that lies under ``root``."""
    paths = tuple(sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()))
    return RepoContext(
        root=root,
        base_commit="0" * 40,
        tracked_files=paths,
        manifests=(),
        fix_id="fix",
        gate_transition_id="transition",
    )


@dataclass(eq=False)
class FakeClients:
    """Plays npm or uv: ``act`` edits the scratch folder and returns (exit code, output)."""

    act: Callable[[str, Sequence[str], Path], tuple[int | None, str]] | None = None
    calls: list[tuple[str, ...]] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)

    def run(
        self,
        tool: str,
        args: Sequence[str],
        *,
        cwd: Path,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        self.calls.append((tool, *args))
        self.folders.append(cwd)
        if self.act is None:
            raise AssertionError(f"{tool} was started, and shouldn't have been")
        code, output = self.act(tool, args, cwd)
        return CommandResult(argv=(tool, *args), exit_code=code, output=output, duration_ms=1)


def real_clients() -> SubprocessClients:
    """The clients as they are used."""
    return SubprocessClients(os.environ)


def fix(plugin: EcosystemPlugin, record: Advisory, repo: RepoContext) -> RecipeResult:
    """Select and apply; the test fails where there is no selection."""
    selection = plugin.select(record, repo)
    assert isinstance(selection, Selected), selection
    return plugin.apply(selection, record, repo)


def refusal(plugin: EcosystemPlugin, record: Advisory, repo: RepoContext) -> NotApplicable:
    """Select; the test fails where there is a selection."""
    selection = plugin.select(record, repo)
    assert isinstance(selection, NotApplicable), selection
    return selection


def after(result: RecipeResult, path: str) -> str:
    """The new text of one changed file."""
    (text,) = (change.after for change in result.changes if change.path == path)
    assert text is not None
    return text
