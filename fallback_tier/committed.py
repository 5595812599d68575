"""The files of a commit, byte for byte: what a patch was made from, whatever the working tree has now."""

import hashlib
import posixpath
import re
from dataclasses import dataclass
from pathlib import Path

from fallback_tier.errors import RepositoryError
from fallback_tier.execution import ClientRunner, CommandResult
from fallback_tier.limits import MAX_FILE_BYTES

_TIMEOUT_S = 60.0

#: A plain file, not a link and not a submodule; the object's name is a SHA-1 or a SHA-256.
_ENTRY = re.compile(r"100(?:644|755) blob ([0-9a-f]{40}|[0-9a-f]{64})\t[^\0]*\0")

#: The same, or a link, which is a blob that holds a path.
_LINK = "120000"
_BLOB = re.compile(rf"(?P<mode>100\d\d\d|{_LINK}) blob (?P<name>[0-9a-f]+)\t[^\0]*\0")

#: Most links that lead to links: no honest manifest has more.
_LINKS = 5

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True)
class CommittedFiles:
    """A repository's objects, through git. The working tree is not read."""

    root: Path
    clients: ClientRunner

    def among(self, commit: str, *paths: str) -> frozenset[str]:
        """Return at which of these paths the commit has anything. Raises RepositoryError: no such
        commit."""
        listed = self._git(["ls-tree", "-z", commit, "--", *paths]) if _is_commit(commit) else None
        if listed is None or not listed.ok:
            raise self._unfit(commit, paths[0], "there is no such commit")
        names = (entry.partition("\t")[2] for entry in listed.output.split("\0"))
        return frozenset(paths).intersection(names)

    def text(self, commit: str, path: str) -> str:
        """Return a file's exact text. Raises RepositoryError for no such commit or file, a link, or a file
        that is too large or not UTF-8."""
        listed = self._git(["ls-tree", "-z", commit, "--", path]) if _is_commit(commit) else None
        entry = _ENTRY.fullmatch(listed.output) if listed and listed.ok else None
        if entry is None:
            raise self._unfit(commit, path, "there is no such plain file", kind="not_a_file")
        output = self._git(["cat-file", "blob", entry[1]]).output
        content = output.encode("utf-8")
        # The object's name is a digest, which git's own messages, or bytes that aren't UTF-8, don't match.
        if len(content) > MAX_FILE_BYTES or _object_name(content, len(entry[1])) != entry[1]:
            raise self._unfit(commit, path, "it is not UTF-8 text, or too large")
        return output

    def glimpse(self, commit: str, path: str) -> str:
        """Return what can be read of something that ``text`` refuses, to search it for a word: bytes that
        are not text are left out, and a link is read as the file of the commit that it leads to."""
        for _ in range(_LINKS):
            listed = self._git(["ls-tree", "-z", commit, "--", path])
            entry = _BLOB.fullmatch(listed.output) if listed.ok else None
            if entry is None:
                break
            output = self._git(["cat-file", "blob", entry["name"]]).output
            if entry["mode"] != _LINK:
                return output.replace("\0", "")
            path = posixpath.normpath(posixpath.join(posixpath.dirname(path), output))
        return ""

    def _git(self, arguments: list[str]) -> CommandResult:
        return self.clients.run("git", arguments, cwd=self.root, timeout_s=_TIMEOUT_S)

    def _unfit(self, commit: str, path: str, why: str, *, kind: str = "") -> RepositoryError:
        return RepositoryError(
            f"{path!r} of commit {commit[:12]} can't be read from {self.root}: {why}.",
            next_step="Name the repository that was fixed, with the commit in it.",
            kind=kind,
        )


def _is_commit(text: str) -> bool:
    return _COMMIT.fullmatch(text) is not None


def _object_name(content: bytes, digits: int) -> str:
    kind = hashlib.sha256 if digits == hashlib.sha256().digest_size * 2 else hashlib.sha1
    return kind(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
