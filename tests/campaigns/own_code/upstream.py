"""Upstream's fix of a case: the files before and after it, and the edits that a plan would say it with.

A plan edits code and nothing else, so manifests, locks, tests, what judges with them (ADR-0056), documents
and CI that a fix also changes are left out, by name. Texts are carried here for the length of a run and
never written down.
"""

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path, PurePosixPath

from fallback_audit.frozen import Frozen
from fallback_plugins.solved_examples.chunking.units import lines_of
from fallback_plugins.solved_examples.sources.dataset import Hunk, LeftOut, LeftOutReason, hunks
from fallback_plugins.solved_examples.sources.release_files import edits_between
from fallback_tier.errors import EditError
from fallback_tier.grounding.validity import MAX_EDIT_BYTES, MAX_EDITS, MAX_EDITS_BYTES
from fallback_tier.outcome import SearchReplace
from fallback_tier.patch.creation import creation_reason, text_reason
from fallback_tier.patch.edits import new_file_text, replace_once
from fallback_tier.patch.judging import Judging
from fallback_tier.patch.policy import forbidden_reason, recipe_only_reason
from fallback_tier.repo import RepoContext
from tests.campaigns.own_code.checkout import Checkout

#: Files that tell of a fix instead of being one.
_DOCUMENTS = frozenset({".md", ".rst", ".txt", ".adoc", ".markdown", ".changes", ".rtf"})
_DOCUMENT_NAME = re.compile(r"(?:change(?:s|log)|history|news|readme|authors|releases?)(?:\..*)?")
_DOCUMENT_FOLDERS = frozenset(
    {"doc", "docs", ".changeset", "changes", "changelog.d", "newsfragments"}
)

_RENAMED = re.compile(r"^rename from (.+)$", re.MULTILINE)


class Unsayable(StrEnum):
    """Why no plan can say the fix."""

    NEW_FILE = "needs a new file that no plan may make"
    FILLED_FILE = "fills an empty file"
    MOVED_FILE = "needs a file moved or deleted"
    NOT_TEXT = "a file is no text"
    TOO_LARGE = "larger than a plan may be"
    NOTHING = "nothing that a plan may edit"
    NOT_THE_DIFF = "the diff does not fit the commit"


class FileFix(Frozen):
    """One file before the fix, line ends as found, and after it with plain ones. ``is_new``: there is none
    before it (``before`` is empty)."""

    path: str
    before: str
    after: str
    is_new: bool = False

    @property
    def edits(self) -> tuple[SearchReplace, ...]:
        """Raises EditError where search and replace can't say it."""
        return self.edits_to(self.after)

    def edits_to(self, text: str) -> tuple[SearchReplace, ...]:
        """The edits after which the file has another text. Raises EditError."""
        if self.is_new:
            return (SearchReplace(path=self.path, old="", new=text),)
        return edits_between(self.path, self.before, text)


class Fix(Frozen):
    """``exact``: the edits make upstream's files; None: there is nothing to compare with."""

    files: tuple[FileFix, ...]
    edits: tuple[SearchReplace, ...] = ()
    left_out: tuple[str, ...] = ()
    unsayable: Unsayable | None = None
    exact: bool | None = None


def fix_of(diff: str, checkout: Checkout) -> Fix:
    """The fix of a diff against the checkout's commit. Never raises for what a fix may be."""
    parts: dict[str, list[Hunk | LeftOut]] = {}
    for part in hunks(diff):
        path = part.edit.path if isinstance(part, Hunk) else part.path
        parts.setdefault(path, []).append(part)
    judging = Judging.of(_repository(checkout))
    ours = {
        path: found
        for path, found in parts.items()
        if _is_editable(path) and judging.reason(path) is None
    }
    left_out = tuple(sorted(parts.keys() - ours.keys()))
    files: list[FileFix] = []
    problems = [Unsayable.MOVED_FILE] if any(map(_is_editable, _RENAMED.findall(diff))) else []
    for path, found in ours.items():
        file = _file(path, found, checkout)
        if isinstance(file, FileFix):
            files.append(file)
        else:
            problems.append(file)
    return _said(tuple(files), left_out, problems, checkout)


def _said(
    files: tuple[FileFix, ...],
    left_out: tuple[str, ...],
    problems: list[Unsayable],
    checkout: Checkout,
) -> Fix:
    edits: list[SearchReplace] = []
    try:
        edits = [edit for file in files for edit in file.edits]
    except EditError:
        problems.append(Unsayable.FILLED_FILE)
    if not problems and not edits:
        problems.append(Unsayable.NOTHING)
    if not problems and too_large(edits):
        problems.append(Unsayable.TOO_LARGE)
    exact = None if problems else _is_exact(files, edits, checkout)
    return Fix(
        files=files,
        edits=() if problems else tuple(edits),
        left_out=left_out,
        unsayable=problems[0] if problems else None,
        exact=exact,
    )


def too_large(edits: Sequence[SearchReplace]) -> bool:
    """Beyond what a plan may hold."""
    sizes = [len(text.encode()) for edit in edits for text in (edit.old, edit.new)]
    return len(edits) > MAX_EDITS or max(sizes) > MAX_EDIT_BYTES or sum(sizes) > MAX_EDITS_BYTES


def applied(text: str, edits: Iterable[SearchReplace]) -> str:
    """A text with edits made as the tool makes them. Raises EditError."""
    for edit in edits:
        text = new_file_text(edit) if edit.makes_file else replace_once(text, edit)
    return text


def _is_exact(
    files: Iterable[FileFix], edits: Sequence[SearchReplace], checkout: Checkout
) -> bool | None:
    """Do the edits leave, to the byte, what the fix's commit has?"""
    known = []
    for file in files:
        upstream = checkout.at_fix(file.path)
        if upstream is not None:
            made = applied(file.before, (edit for edit in edits if edit.path == file.path))
            known.append(made.encode() == upstream)
    return all(known) if known else None


def _file(path: str, parts: Sequence[Hunk | LeftOut], checkout: Checkout) -> FileFix | Unsayable:
    reasons = {part.reason for part in parts if isinstance(part, LeftOut)}
    if LeftOutReason.NEW_FILE in reasons:
        return _new_file(path, checkout)
    if LeftOutReason.DELETED_FILE in reasons:
        return Unsayable.MOVED_FILE
    before = text_of(checkout.root / path)
    if before is None or LeftOutReason.BINARY in reasons:
        return Unsayable.NOT_TEXT
    if reasons:  # an insertion without context: only the fix's commit tells where
        upstream = checkout.at_fix(path)
        after = None if upstream is None else upstream.decode("utf-8", "replace")
    else:
        after = patched(before, [part for part in parts if isinstance(part, Hunk)])
    if after is None:
        return Unsayable.NOT_THE_DIFF
    return FileFix(path=path, before=before, after=after.replace("\r\n", "\n"))


def _new_file(path: str, checkout: Checkout) -> FileFix | Unsayable:
    """A file that only the fix's commit has, if a plan may make it."""
    content = checkout.at_fix(path)
    if content is None:
        return Unsayable.NOT_THE_DIFF
    try:
        text = _plain(content.decode("utf-8"))
    except UnicodeDecodeError:
        return Unsayable.NOT_TEXT
    if creation_reason(path, _repository(checkout)) or text_reason(text):
        return Unsayable.NEW_FILE
    return FileFix(path=path, before="", after=text, is_new=True)


def _repository(checkout: Checkout) -> RepoContext:
    return RepoContext(
        root=checkout.root,
        base_commit=checkout.fix_commit,
        tracked_files=checkout.tracked,
        manifests=(),
        fix_id="own-code",
        gate_transition_id="own-code",
    )


def patched(before: str, parts: Sequence[Hunk]) -> str | None:
    """The text with hunks made where they say, plain line ends; None where it is another text."""
    lines = lines_of(_plain(before))
    for part in sorted(parts, key=lambda part: part.line, reverse=True):
        old, new = lines_of(_plain(part.edit.old)), lines_of(_plain(part.edit.new))
        start = max(0, part.line - 1)
        if lines[start : start + len(old)] != old:
            return None
        lines[start : start + len(old)] = new
    return "".join(lines)


def text_of(place: Path) -> str | None:
    """A file's text, line ends as found; None: a link, no file, or no UTF-8."""
    if place.is_symlink() or not place.is_file():
        return None
    try:
        return place.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return None


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n")


def _is_editable(path: str) -> bool:
    return (
        forbidden_reason(path) is None
        and recipe_only_reason(path) is None
        and not is_document(path)
    )


def is_document(path: str) -> bool:
    """Does it only tell of the code?"""
    pure = PurePosixPath(path.lower())
    return (
        pure.suffix in _DOCUMENTS
        or _DOCUMENT_NAME.fullmatch(pure.name) is not None
        or not _DOCUMENT_FOLDERS.isdisjoint(pure.parts[:-1])
    )
