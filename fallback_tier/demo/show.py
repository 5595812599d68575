"""``fallback-tier demo``: the main job on real input; what is replayed is labelled."""

import argparse
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel

from fallback_audit.showing.render import Renderer
from fallback_audit.showing.render_report import render_report
from fallback_audit.stores.sqlite import open_readonly
from fallback_audit.verifying.verify import verify
from fallback_plugins.solved_examples.store.example_store import ExampleStore
from fallback_plugins.solved_examples.store.records import load_jsonl
from fallback_tier.advisory import load_advisory
from fallback_tier.cli import exit_codes
from fallback_tier.cli.fix.report import report
from fallback_tier.cli.progress import FixProgress
from fallback_tier.demo.cassette import check_extra, recorded_nonces, replayed_author
from fallback_tier.demo.projects import copy_project, fetch_flask, fetch_rc, flaw_test, shipped
from fallback_tier.execution import ClientRunner
from fallback_tier.fix.open_fix import run_fix
from fallback_tier.fix.parts import fix_parts
from fallback_tier.fix_result import DeliveryOutcome, Verified
from fallback_tier.handover.working_tree import put_on_working_tree
from fallback_tier.ports import LanguageModel, NonceSource
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.wiring import Configuration, audit_db, open_services, random_nonce
from fallback_tier.wiring.places import check_caches
from fallback_tier.wiring.trail import RecordSettings, open_evidence, read_checkpoints

RETRY_FIX = "demo-retry"


@dataclass(frozen=True)
class Scene:
    """One fix of the demo. ``fetch`` puts a committed repository at a path. ``proof``: the demo's file that
    shows the vulnerability, if no version shows the fix."""

    title: str
    about: str
    fix_id: str
    advisory: str
    fetch: Callable[[Path, ClientRunner], None]
    proof: str | None = None


NPM = Scene(
    "1. A real npm project, fixed by recipe",
    "rc 1.2.8 from the npm registry, whose lock holds ini 1.3.5 (CVE-2020-7788). The real npm writes "
    "the new lock; rc's own tests run in the sandbox. No model.",
    "demo-npm",
    "GHSA-qqgx-2p2h-9c37",
    fetch_rc,
)
PYTHON = Scene(
    "2. A real Python project, fixed by recipe",
    "Flask 3.1.2 from the Python registry, whose lock holds Werkzeug 3.1.3 (CVE-2025-66221). The real "
    "uv writes the new lock; Flask's own tests run in the sandbox. No model.",
    "demo-python",
    "GHSA-hgf8-39gv-g3f2",
    fetch_flask,
)
REPLAY = Scene(
    "3. A fix replayed from a solved example",
    "A small project of ours, and a store with one validated fix of the same package on the same file "
    "content. The example's edit is replayed; the gates are real, a test of the flaw among them. No model.",
    "demo-replay",
    "DEMO-2026-0001",
    partial(copy_project, "replay"),
    "replay.py",
)
RETRY = Scene(
    "4. A fix that fails its gates once, and succeeds from a fresh context",
    "A small project of ours, and an example that fits its code but breaks its tests: asking "
    "retrieval again would return it again. [magenta]Replayed by vcrpy from a cassette: the model's "
    "HTTP traffic, "
    "recorded from a real local model (the file says which).[/] Everything else is real.",
    RETRY_FIX,
    "DEMO-2026-0002",
    partial(copy_project, "retry"),
    "retry.py",
)


def run(arguments: argparse.Namespace) -> int:
    """Run the four scenes, then the audit trail, then tamper with a copy of it. Without npm the first scene
    is left out, and named. Raises ConfigurationError if the extra is not installed."""
    check_extra()
    console = Console()
    keep_dir = Path(arguments.keep).absolute() if arguments.keep else None
    skipped = left_out()
    for scene in skipped:
        console.print(f"left out, since node or npm is not on PATH: {scene.title}")
    check_caches(SubprocessClients(), ("PyPI",) if skipped else ("npm", "PyPI"), offline=False)
    root = keep_dir or Path(tempfile.mkdtemp(prefix="fallback-tier-demo-"))
    root.mkdir(parents=True, exist_ok=True)
    try:
        return Demo(root, console, without=skipped).run()
    finally:
        if keep_dir is None:
            shutil.rmtree(root, ignore_errors=True)


def left_out() -> tuple[Scene, ...]:
    """Return the scenes that this machine has no client for."""
    has_node = all(shutil.which(name) for name in ("node", "npm"))
    return () if has_node else (NPM,)


class Demo:
    """The scenes in one folder, except those ``without``."""

    def __init__(self, root: Path, console: Console, without: Sequence[Scene] = ()) -> None:
        self._without = without
        self._root = root
        self._state = root / "state"
        self._record = RecordSettings(keys=root / "keys")
        self._console = console
        self._clients = SubprocessClients()

    def run(self) -> int:
        """Run all of it; return an exit code."""
        fixed = [self._play(scene) for scene in (NPM, PYTHON) if scene not in self._without]
        fixed += [self._play_with_example(), self._play_retry()]
        intact = self._show_trail()
        caught = self._tamper()
        if all(fixed) and intact and caught:
            self._console.print(
                f"[bold green]demo complete[/]: {len(fixed)} fixed, each shown by a gate, "
                "the trail verified"
            )
            for scene in self._without:
                self._console.print(f"left out: {scene.title}")
            return exit_codes.OK
        self._console.print("[bold red]the demo did not go as it should[/]")
        return exit_codes.ESCALATED

    def _play(
        self,
        scene: Scene,
        *,
        examples: Path | None = None,
        author: LanguageModel | None = None,
        nonces: NonceSource = random_nonce,
    ) -> bool:
        self._console.print(Panel(scene.about, title=scene.title, title_align="left"))
        repository = self._root / scene.fix_id
        with self._console.status("fetching the project …"):
            scene.fetch(repository, self._clients)
        with shipped(f"advisories/{scene.advisory}.json") as path:
            advisory = load_advisory(path)
        configuration = Configuration(
            state_dir=self._state,
            record=self._record,
            examples=examples,
            proof=flaw_test(scene.proof) if scene.proof else None,
        )
        with open_services(configuration, nonces=nonces, author=author) as services:
            inputs = services.inputs(advisory, repository, fix_id=scene.fix_id)
            with FixProgress(self._console) as progress:
                parts = fix_parts(
                    services, advisory, progress, repo=inputs.repo_ctx, report=progress.report
                )
                work = inputs.advisory, inputs.repo_ctx, inputs.recipe_selection
                result = run_fix(parts, *work)
            proved = isinstance(result, Verified)
            if isinstance(result, Verified):
                put_on_working_tree(result.application, inputs.repo_ctx, services.clients)
            report(result, self._console, DeliveryOutcome(delivered=proved), self._state)
        self._console.print()
        return proved

    def _play_with_example(self) -> bool:
        return self._play(REPLAY, examples=self._examples())

    def _play_retry(self) -> bool:
        with shipped("cassettes/retry.yaml") as path, replayed_author(path) as author:
            return self.play_retry(author)

    def play_retry(self, author: LanguageModel) -> bool:
        """Play scene 4 with any author; its traffic is also recorded with this."""
        return self._play(RETRY, examples=self._examples(), author=author, nonces=recorded_nonces())

    def _examples(self) -> Path:
        store = self._root / "examples.db"
        with shipped("solved-examples.jsonl") as path:
            ExampleStore(store).ingest(load_jsonl(path))
        return store

    def _show_trail(self) -> bool:
        self._console.print(
            Panel(
                "What an operator sees of fix 4. Attempt 2 was a fresh LLM run: its prompt had the "
                "failure's summary in place of examples, and the trail says so.",
                title="5. The audit trail",
                title_align="left",
            )
        )
        with closing(open_readonly(audit_db(self._state))) as reader:
            evidence = open_evidence(self._state)
            Renderer(self._console).render_fix(reader.events(RETRY_FIX), evidence)
            checked = verify(
                reader, checkpoints=read_checkpoints(self._state, self._record), evidence=evidence
            )
            render_report(checked, self._console)
        self._console.print()
        return checked.ok

    def _tamper(self) -> bool:
        """Change one byte of a copy without the store: ``verify`` must report which event."""
        copy = self._root / "tampered"  # a file like any other: SQLite has not opened it yet
        with closing(open_readonly(audit_db(self._state))) as reader:
            reader.copy_to(copy)
        data = copy.read_bytes()
        old, new = b'"failure_kind":"tests_failed"', b'"failure_kind":"tests_fai1ed"'
        at = data.rfind(old)
        copy.write_bytes(data[:at] + new + data[at + len(old) :])
        with closing(open_readonly(copy)) as reader:
            checked = verify(reader, checkpoints=read_checkpoints(self._state, self._record))
        first = checked.first_bad
        self._console.print(
            Panel(
                f"One byte of a copy was changed. verify: "
                f"{'[red]NOT INTACT[/]' if not checked.ok else 'intact'}"
                + (f", event {first.seq}: {escape(first.reason)}" if first else ""),
                title="6. Tampering",
                title_align="left",
            )
        )
        return at >= 0 and not checked.ok
