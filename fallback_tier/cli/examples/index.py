"""``fallback-tier examples index``, ``manifest`` and ``validate``: what the memory is searched by."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from fallback_audit.showing.describe import visible
from fallback_plugins.solved_examples.index.drift import validate as find_drift
from fallback_plugins.solved_examples.index.embedding import load_embedder, missing_packages
from fallback_plugins.solved_examples.store import manifest as manifests
from fallback_tier.cli import exit_codes
from fallback_tier.cli.examples.records import open_store
from fallback_tier.cli.output import print_json
from fallback_tier.cli.progress import Shown


def manifest(arguments: argparse.Namespace) -> int:
    """The manifest, as the last change left it."""
    found = manifests.manifest(open_store(arguments))
    document = {**found.model_dump(mode="json"), "manifest_sha256": found.sha256}
    if arguments.json:
        print_json(document)
        return exit_codes.OK
    embedding = document.pop("embedding") or {"embedding": "none: words alone are searched"}
    for name, value in {**document, **embedding}.items():
        sys.stdout.write(f"{name:16} {visible(str(value))}\n")
    return exit_codes.OK


def validate(arguments: argparse.Namespace) -> int:
    """Every difference, a line each; ENVIRONMENT where there is one."""
    drift = find_drift(open_store(arguments), load_embedder())
    if arguments.json:
        print_json({"drift": [item.model_dump(mode="json") for item in drift]})
    else:
        for item in drift:
            sys.stdout.write(f"{item.kind}: {visible(item.sentence)}\n")
        if not drift:
            sys.stdout.write("no drift\n")
    return exit_codes.ENVIRONMENT if drift else exit_codes.OK


def index(arguments: argparse.Namespace) -> int:
    """Cut and embed what is new. Without the extra the cutting is all there is, and it says so."""
    store = open_store(arguments)
    embedder = load_embedder(many=True)
    with _Bar() as bar:
        cut = store.rechunk(bar.stage("cutting"))
        built = None
        if embedder is not None:
            from fallback_plugins.solved_examples.index.indexing import build_index

            built = build_index(
                store, embedder, progress=bar.stage("embedding"), rebuild=arguments.rebuild
            )
        else:
            from fallback_plugins.solved_examples.index.word_index import build_words

            build_words(store)
    if arguments.json:
        print_json({"cut": cut, "embedding": built and asdict(built)})
        return exit_codes.OK
    if cut:
        sys.stdout.write(f"{cut} records cut again\n")
    if built is None:
        missing = ", ".join(missing_packages())
        sys.stdout.write(
            "words alone are searched: the extra `embeddings` is not installed "
            f"(missing: {missing})\n"
        )
    else:
        sys.stdout.write(
            f"{built.embedded} chunks embedded in {built.seconds:.1f} s, {built.already} were before\n"
        )
    return exit_codes.OK


class _Bar(Shown):
    """How far a long work is, on a terminal. Use as a context manager."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        super().__init__(self._progress)

    def stage(self, name: str) -> Callable[[int, int], None]:
        """What a part of the work calls with (done, total)."""
        task = self._progress.add_task(name, total=None, visible=False)

        def show(done: int, total: int) -> None:
            self._progress.update(task, completed=done, total=total, visible=total > 0)

        return show
