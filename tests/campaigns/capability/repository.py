"""A fix and the project at the commit before it, read from a bare clone."""

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

from fallback_tier.gates.capability.project import package_of
from fallback_tier.limits import MAX_FILE_BYTES
from fallback_tier.outcome import FileChange
from fallback_tier.patch.policy import forbidden_reason, recipe_only_reason
from fallback_tier.syntax import grammar_of
from tests.campaigns.own_code.cases import Record

#: Files that one git command reads: few more than a question needs.
_AT_ONCE = 200


@dataclass(frozen=True)
class Repository:
    """A project at the commit before its fix."""

    git_dir: Path
    record: Record

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The files at the base commit. Raises RuntimeError."""
        reported = self._git("ls-tree", "-r", "-z", "--name-only", self.record.parent_commit)
        return tuple(filter(None, reported.decode("utf-8", "replace").split("\0")))

    def texts(self, paths: Iterable[str]) -> Iterable[tuple[str, str]]:
        """Paths and what is in them at the base commit, of those that can be read."""
        every = iter(paths)
        while some := list(islice(every, _AT_ONCE)):
            for path, content in self._contents(self.record.parent_commit, some):
                if content is not None:
                    yield path, content

    @property
    def product(self) -> list[str]:
        """Source that is read and that a fix may change."""
        return [path for path in self.paths if grammar_of(path) and forbidden_reason(path) is None]

    @property
    def sources(self) -> list[str]:
        """Changed files in a language that is read."""
        return [change.path for change in self.changes if grammar_of(change.path)]

    def adds(self, names: Iterable[str]) -> bool:
        """Does the fix write one of these packages into a manifest that did not name it?"""
        manifests = [change for change in self.changes if recipe_only_reason(change.path)]
        before = "".join(change.before or "" for change in manifests)
        after = "".join(change.after or "" for change in manifests)
        packages = {package_of(name).partition(".")[0] for name in names}
        return any(name in after and name not in before for name in packages)

    @cached_property
    def changes(self) -> tuple[FileChange, ...]:
        """What the fix changes of what a patch may change: without tests, CI and the like."""
        base, fix = self.record.parent_commit, self.record.fix_commit
        reported = self._git("diff-tree", "-r", "-z", "--no-renames", "--name-only", base, fix)
        paths = [
            path
            for path in reported.decode("utf-8", "replace").split("\0")
            if path and path not in self.record.test_files and forbidden_reason(path) is None
        ]
        before, after = (dict(self._contents(commit, paths)) for commit in (base, fix))
        pairs = ((path, before.get(path), after.get(path)) for path in paths)
        return tuple(
            FileChange(path=path, before=old, after=new) for path, old, new in pairs if old != new
        )

    def _contents(self, commit: str, paths: list[str]) -> Iterable[tuple[str, str | None]]:
        asked = "".join(f"{commit}:{path}\n" for path in paths if "\n" not in path)
        reported = self._git("cat-file", "--batch", stdin=asked.encode())
        at = 0
        for path in paths:
            end = reported.index(b"\n", at)
            head = reported[at:end].split(b" ")
            at = end + 1
            if head[-1] == b"missing" or not head[-1].isdigit():
                yield path, None
                continue
            size = int(head[-1])
            content = reported[at : at + size]
            at += size + 1
            yield path, _text(content) if head[-2] == b"blob" else None

    def _git(self, *arguments: str, stdin: bytes = b"") -> bytes:
        command = ["git", "-c", "safe.directory=*", "--git-dir", str(self.git_dir), *arguments]
        ended = subprocess.run(command, input=stdin, capture_output=True)
        if ended.returncode:
            raise RuntimeError(ended.stderr.decode("utf-8", "replace"))
        return ended.stdout


def _text(content: bytes) -> str | None:
    if len(content) > MAX_FILE_BYTES or b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None
