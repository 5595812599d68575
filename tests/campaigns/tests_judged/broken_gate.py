"""A gate by entry point that puts the patch *and* one broken function to the product's own tests gate.

breaking.py mounts it next to the measured build, whatever its version: only the protocols of
``fallback_tier.gate_ports`` are used. What the tests gate answers is written to a file; for the fix the
gate is skipped, so that nothing else changes.
"""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

#: Names the file of the breaks. The answers go to the same path with ``.answers``, one JSON per line.
BREAKS = "TESTS_JUDGED_BREAKS"

NAME = "broken_function"


@dataclass(frozen=True)
class _BrokenWorktree:
    """A worktree whose patched files have another text at ``path``."""

    inner: Any
    path: str
    text: str

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def tree(self) -> Any:
        return self._over(self.inner.tree)

    def changed(self) -> Any:
        """With the broken file, as a patch of both would have it: tests are chosen by what changed."""
        from fallback_tier.files.tree import RawChange

        modes = {"old_mode": "100644", "new_mode": "100644"}
        return (*self.inner.changed(), RawChange(path=self.path, status="M", **modes))

    @contextmanager
    def fresh(self, *, patched: bool) -> Iterator[Any]:
        with self.inner.fresh(patched=patched) as tree:
            yield self._over(tree) if patched else tree

    def _over(self, tree: Any) -> Any:
        if not tree.lower:
            (tree.root / self.path).write_text(self.text, encoding="utf-8")
            return tree
        layer = self.layer(tree)
        place = layer / self.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(self.text, encoding="utf-8")
        owner = tree.lower[-1].stat()
        for one in (layer, *layer.rglob("*")):
            one.chmod(0o755 if one.is_dir() else 0o644)
            os.chown(one, owner.st_uid, owner.st_gid)
        return tree.model_copy(update={"lower": (*tree.lower, layer)})

    def layer(self, tree: Any) -> Path:
        """A layer over the patch's, in the same folder: the sandbox can read it."""
        return Path(tree.lower[-1]).parent / "broken-function"


@dataclass(frozen=True)
class BrokenFunction:
    """Asks the tests gate about each break, until it fails one."""

    plugin: Any

    @property
    def name(self) -> str:
        return NAME

    def judge(self, context: Any) -> Any:
        from fallback_tier.gate_ports import skipped

        place = Path(os.environ[BREAKS])
        (gate,) = [one for one in self.plugin.gates() if one.name == "tests"]
        for number, broken in enumerate(json.loads(place.read_text(encoding="utf-8"))):
            worktree = _BrokenWorktree(context.worktree, broken["path"], broken["text"])
            patch = context.application
            files, diff = (*patch.files, broken["path"]), patch.diff + broken["diff"]
            patch = patch.model_copy(update={"files": files, "diff": diff})
            verdict = gate.judge(replace(context, worktree=worktree, application=patch))
            level = getattr(verdict, "tests_level", None)
            answer = {
                "number": number,
                "status": verdict.status,
                "detail": verdict.detail,
                "level": level,
            }
            with place.with_suffix(".answers").open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(answer)}\n")
            if context.worktree.tree.lower:
                shutil.rmtree(worktree.layer(context.worktree.tree), ignore_errors=True)
            if verdict.status == "failed":
                break
        return skipped(NAME, "this gate only measures")


def build_gates(plugin: Any) -> Sequence[BrokenFunction]:
    """The entry point."""
    return [BrokenFunction(plugin)]
