"""Runs one case at the level of recipes: select and apply, in a scratch repository, no gates."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fallback_plugins.npm import build_ecosystem as build_npm
from fallback_plugins.pypi import build_ecosystem as build_pypi
from fallback_tier.advisory import bundle, load_advisory
from fallback_tier.errors import FallbackError, RecipeError
from fallback_tier.outcome import NotApplicable, RecipeResult
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import RepoContext
from fallback_tier.sandbox.clients import SubprocessClients
from tests.campaigns.recipes_bench.cases import Case
from tests.campaigns.recipes_bench.fixture import Moved, moved
from tests.campaigns.recipes_bench.raw import Raw

#: A case is a handful of client calls, a second each; a parent bump tries some more.
CASE_TIMEOUT_S = 600

_GIT = ("git", "-c", "user.name=bench", "-c", "user.email=bench@example.invalid")


class CaseTimeoutError(Exception):
    """The case took longer than CASE_TIMEOUT_S."""


def run_case(case: Case) -> Raw:
    """Never raises for what the recipe does: a crash is an outcome, and a miss."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="recipe-") as folder, _alarm():
        place = Path(folder)
        try:
            if case.universe is None:
                raw = _run(case, case.before, os.environ, place)
            else:
                with moved(case) as there:
                    raw = _run_fixture(case, there, place)
        except Exception as error:  # noqa: BLE001 (whatever it is, the next case must run)
            raw = Raw(case.name, "crashed", type(error).__name__, str(error))
    return replace(raw, seconds=round(time.monotonic() - started, 2))


def build_plugin(ecosystem: str, environ: Mapping[str, str]) -> EcosystemPlugin:
    """The product's plugin, over real clients."""
    build = build_npm if ecosystem == "npm" else build_pypi
    return build(SubprocessClients(environ))


def _run_fixture(case: Case, there: Moved, place: Path) -> Raw:
    raw = _run(case, there.texts, there.environ, place)
    after = {**there.texts, **{path: text or "" for path, text in raw.changes.items()}}
    texts = {path: text and there.back(path, text) for path, text in raw.changes.items()}
    return replace(
        raw,
        changes=texts,
        installed_before=there.installed(there.texts, place / "judge-before"),
        installed_after=there.installed(after, place / "judge-after"),
    )


def _run(case: Case, texts: Mapping[str, str], environ: Mapping[str, str], place: Path) -> Raw:
    root = repository(texts, place / "repository")
    raw = _ended(case, build_plugin(case.ecosystem, environ), root, tuple(sorted(texts)))
    status = [*_GIT, "status", "--porcelain", "-uall"]
    done = subprocess.run(status, cwd=root, capture_output=True, check=True, text=True)
    return replace(raw, written=done.stdout.splitlines())


def _ended(case: Case, plugin: EcosystemPlugin, root: Path, paths: tuple[str, ...]) -> Raw:
    advisory = bundle([load_advisory(file) for file in case.advisory_files])
    repo = RepoContext(
        root=root,
        base_commit="0" * 40,
        tracked_files=paths,
        manifests=plugin.manifests(paths),
        fix_id="bench",
        gate_transition_id="bench",
    )
    selection = plugin.select(advisory, repo)
    if isinstance(selection, NotApplicable):
        return Raw(case.name, "refused", selection.reason.value, selection.sentence)
    try:
        result = plugin.apply(selection, advisory, repo)
    except RecipeError as error:
        return Raw(case.name, "refused", error.reason.value, error.problem)
    except FallbackError as error:
        return Raw(case.name, "refused", error.code, error.problem)
    return _fixed(case.name, result)


def _fixed(name: str, result: RecipeResult) -> Raw:
    reported = result.model_dump(mode="json")
    return Raw(
        name,
        "fixed",
        changes={change.path: change.after for change in result.changes},
        proof_level=result.proof_level.value,
        moves=reported["moves"],
        left=reported["left"],
        notes=reported["notes"],
    )


def repository(texts: Mapping[str, str], root: Path) -> Path:
    """A git repository with these files, committed."""
    for path, text in texts.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode())
    for args in (["init", "--quiet"], ["add", "-A"], ["commit", "--quiet", "-m", "before"]):
        subprocess.run([*_GIT, *args], cwd=root, capture_output=True, check=True)
    return root


@contextmanager
def _alarm() -> Iterator[None]:
    """Raise CaseTimeoutError in the main thread: what is running gets to end its own clients."""

    def ring(signum: int, frame: object) -> None:
        raise CaseTimeoutError(f"not done after {CASE_TIMEOUT_S} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(CASE_TIMEOUT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
