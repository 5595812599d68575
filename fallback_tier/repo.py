"""The repository as one attempt sees it: read-only, bounded, at a known commit."""

import errno
import posixpath
import secrets
import stat
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, Field

from fallback_audit.disk_errors import blamed, raise_failed
from fallback_audit.event_types import AgeException
from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import AffectedCode, LadderStep
from fallback_tier.affected import Affected
from fallback_tier.errors import RepositoryError
from fallback_tier.files.tree import FileTree
from fallback_tier.hosts import ALLOWED_HOST
from fallback_tier.limits import (
    MAX_BEAM_WIDTH,
    MAX_FILE_BYTES,
    MAX_PATHS_GIVEN,
    MAX_TEST_COMMAND_CHARS,
    MAX_TEST_COMMANDS,
    MAX_TESTS_S,
    SMALL_OUTPUT_TOKENS,
)

#: ``HOST`` or ``HOST:PORT``.
AllowedHost = Annotated[str, Field(pattern=ALLOWED_HOST)]


#: Days; ten years are more than any rule needs.
ReleaseAge = Annotated[int, Field(ge=1, le=3_650)]

#: A line for a shell. No program can get an argument with a NUL in it (execve(2)).
TestLine = Annotated[
    str, Field(min_length=1, max_length=MAX_TEST_COMMAND_CHARS, pattern=r"^[^\x00]*\S[^\x00]*$")
]
TestLines = Annotated[tuple[TestLine, ...], Field(max_length=MAX_TEST_COMMANDS)]

#: Seconds of one run of a project's tests.
TestSeconds = Annotated[float, Field(gt=0, le=MAX_TESTS_S, allow_inf_nan=False)]


def _as_folder(text: str) -> str:
    """Return a folder of a repository in the form in which ``git ls-files`` begins its paths. Raises
    ValueError if it can't be one."""
    folder = posixpath.normpath(text)
    if posixpath.isabs(folder) or folder.split("/")[0] == ".." or "\0" in folder:
        raise ValueError("it must be a folder of the repository, relative to its root")
    return folder


#: Folders of a repository, relative to its root; ``.`` is all of it.
Folder = Annotated[str, Field(min_length=1, max_length=4_096), AfterValidator(_as_folder)]
Folders = Annotated[tuple[Folder, ...], Field(max_length=MAX_PATHS_GIVEN)]

_Made = TypeVar("_Made")

#: Fields that decide which files a context shows.
_FILES = frozenset(
    {"root", "base_commit", "tracked_files", "odd_names", "laid_out_with_crlf", "layers"}
)


class Strategy(StrEnum):
    """How the LLM tier comes to its first draft of a plan."""

    STANDARD = "standard"
    SELF_RAG = "self-rag"


class Effort(StrEnum):
    """How much a model is to think and to write (the Messages API's ``output_config.effort``)."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


class AnswerForm(StrEnum):
    """How a model is to write its plan: one JSON object, or plain text with search/replace blocks."""

    JSON = "json"
    BLOCKS = "blocks"


class Settings(Frozen):
    """The part of our configuration that an attempt needs."""

    #: Most tokens of one answer, thinking included.
    max_output_tokens: int = SMALL_OUTPUT_TOKENS
    #: None: the model's default.
    effort: Effort | None = None
    #: Bytes of code in a prompt: code that calls a dependency.
    snippet_budget_bytes: int = 12_000
    #: … and the package's own code, if that is affected (docs/evaluation/own-code/code-budget.md).
    own_code_budget_bytes: int = 192_000
    strategy: Strategy = Strategy.STANDARD
    #: The form in which a plan is requested and read; a self-RAG search supports JSON alone.
    answer_form: AnswerForm = AnswerForm.JSON
    #: Paths that self-RAG keeps after each step; 1 is greedy search.
    beam_width: Annotated[int, Field(ge=1, le=MAX_BEAM_WIDTH)] = 1
    #: A failure's summary has a line for each attempt before it. Off until an ablation shows its effect.
    recalls_attempts: bool = False
    #: Contact no registry if the files alone suffice: a yanked release can't be noticed then.
    offline: bool = False
    #: Hosts that package clients may contact, in addition to the user's own configuration (ADR-0096).
    allow_hosts: tuple[AllowedHost, ...] = ()
    #: Days that a release must have been published before a fix takes it, whatever the project's own rules
    #: say (ADR-0110); None: the project's rules alone.
    release_age_days: ReleaseAge | None = None
    #: Packages that a person exempts from every such rule, for one fix.
    age_exceptions: tuple[AgeException, ...] = ()
    #: A person's choice of the step that is tried first, of the parent bump and the override; None: the one
    #: that changes less for the application.
    prefer: LadderStep | None = None
    #: A person's decision whose code is affected (``--own-code``, ``--dependency``); None: it is looked up.
    whose_code: AffectedCode | None = None
    #: Folders that a person limits a fix to (``--path``, ``paths``): a project with no file in one of them
    #: stays as it is, and what is affected there is left by name. None given: the whole repository.
    paths: Folders = ()
    #: A person's commands that test the project, the best first (``--test-command``); if there is none,
    #: those of the base commit's configuration (``test_command``). Run in the folder of each project that
    #: the patch touches.
    test_commands: TestLines = ()
    #: Seconds that one run of the tests gets (``--test-timeout``, ``test_timeout_s``); None: derived from
    #: the base commit's own run.
    test_timeout_s: TestSeconds | None = None
    #: A person's own file (``--config``) counts instead of the base commit's configuration.
    has_own_file: bool = False


class OddName(Frozen):
    """Why a tracked file is called otherwise than ``tracked_files`` shows it, or can't be named in a patch.

    ``real``: its name on the disk, with surrogates for bytes that are no UTF-8. ``problem``: a sentence.
    """

    real: str
    problem: str


#: Most pointers of each kind that a proof's failure has: more places are a list, not a pointer.
MAX_POINTERS = 60


class SourceLine(Frozen):
    """A line (from 1) of a tracked source file."""

    path: str
    line: Annotated[int, Field(ge=1)]


class ProofFailure(Frozen):
    """How the proof fails at the base commit, and what that points at; at most MAX_POINTERS of each kind.

    ``text``: the failing tests, assertions and frames, without secrets. ``titles``: the failing tests and
    the proof's files. ``frames``: lines that the failure ran through, the innermost call first. ``files``:
    tracked files that the failing tests import; ``names``: what they import of them; ``uses``: functions
    and attributes that they use.
    """

    text: str = ""
    titles: tuple[str, ...] = ()
    frames: tuple[SourceLine, ...] = ()
    files: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()


#: Random bytes of an identifier (64 bit).
ID_BYTES = 8


def new_id(kind: str) -> str:
    """Return a new identifier."""
    return f"{kind}-{secrets.token_hex(ID_BYTES)}"


class RepoContext(Frozen):
    """A repository at a base commit. ``tracked_files`` and ``manifests`` are POSIX-relative paths; what is
    in ``odd_names`` is shown as well as it can be, and is not read."""

    root: Path
    base_commit: str
    tracked_files: tuple[str, ...]
    manifests: tuple[str, ...]
    fix_id: str
    gate_transition_id: str
    settings: Settings = Settings()
    tracked_files_cut: bool = False
    odd_names: dict[str, OddName] = Field(default_factory=dict)
    #: Files that are committed with LF, and that git, or an editor, checks out with CRLF.
    laid_out_with_crlf: frozenset[str] = frozenset()
    #: The files' location if they are not in ``root`` alone.
    layers: FileTree | None = None
    #: Whose code the advisory in hand is about; None: not decided (another host's context).
    affected: Affected | None = None
    #: How the proof fails at the base commit; None: no proof was given, or it did not run.
    proof_failure: ProofFailure | None = None

    @property
    def tree(self) -> FileTree:
        """The files' location."""
        return self.layers or FileTree(root=self.root)

    @property
    def affected_code(self) -> AffectedCode:
        """Whose code is affected; a dependency's if that was not looked up."""
        return AffectedCode.DEPENDENCY if self.affected is None else self.affected.code

    def once(self, key: object, make: Callable[[], _Made]) -> _Made:
        """Return what ``make`` returned on the first call for this key: a value that is expensive to derive
        from the files, or that a client made of them. Copies with the same files share it."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]  # type: ignore[no-any-return]

    def share(self, other: "RepoContext") -> None:
        """Take over what ``once`` returned for another context of the same files."""
        self._made.update(other._made)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy as pydantic does, without what was derived from the files if those differ."""
        shared = self._made
        copied = super().model_copy(update=update, deep=deep)
        for name in ("_made", "_tracked"):
            copied.__dict__.pop(name, None)
        if not _FILES.intersection(update or ()):
            copied.__dict__["_made"] = shared
        return copied

    def laid_out(self, tree: FileTree) -> "RepoContext":
        """Return the same repository with its files in ``tree``: same bounds, links never followed."""
        return self.model_copy(update={"root": tree.root, "layers": tree})

    def read_text(self, path: str) -> str:
        """Return a tracked file's text with the line ends that are committed.

        Raises RepositoryError if it is not tracked, has an odd name, is outside the root, a link, not a
        plain file, larger than MAX_FILE_BYTES, or not text: not UTF-8, or with NUL bytes, by which git
        detects a binary file.
        """
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts or path not in self._tracked:
            raise RepositoryError(
                f"{path!r} is not a tracked file of {self.root}.",
                next_step="Name a path that `git ls-files` lists.",
            )
        if (odd := self.odd_names.get(path)) is not None:
            raise RepositoryError(
                odd.problem,
                next_step="Rename it (`git mv`), and commit that.",
                kind="not_utf8_name",
            )
        try:
            content = self._bytes(path)
            if (position := content.find(0)) >= 0:
                wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
                why = "it is UTF-16" if wide else f"it has a NUL byte (byte {position})"
                raise RepositoryError(
                    f"{path!r} is not UTF-8 text: {why}.",
                    next_step="Only UTF-8 text files are read and edited.",
                )
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RepositoryError(
                f"{path!r} is not UTF-8 text (byte {error.start}).",
                next_step="Only UTF-8 text files are read and edited.",
            ) from error
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise RepositoryError(
                    f"{path!r} is, or lies behind, a symbolic link.",
                    next_step="Links are never followed; name the file itself.",
                ) from error
            unreadable = RepositoryError(
                f"{path!r} can't be read: {error.strerror}.",
                next_step="Check that the working tree is complete (`git status`).",
            )
            raise blamed(error, repr(path), unreadable) from error

    def glimpse(self, path: str) -> str | None:
        """Return what can be read of a tracked file that ``read_text`` refuses, to search it for names:
        bytes that are not text are left out, and a link is read as the tracked file that it leads to. None
        if nothing can."""
        try:
            if (target := self.leads_to(path)) is not None:
                return self.read_text(target)
            return self._bytes(path).decode("utf-8", "ignore").replace("\0", "")
        except (OSError, RepositoryError) as error:
            raise_failed(error, repr(path))
            return None

    def leads_to(self, path: str) -> str | None:
        """Return the tracked file that a tracked link names, or None if there is no such link or file."""
        folder = posixpath.dirname(path)
        try:
            self.tree.locate(folder)
            entry = self.tree.entry(PurePosixPath(path)) if path in self._tracked else None
            target = posixpath.normpath(posixpath.join(folder, entry.readlink())) if entry else ""
        except OSError:  # not a link, or below one
            return None
        return target if target in self._tracked else None

    def has(self, path: str) -> bool:
        """Return whether this path is tracked."""
        return path in self._tracked

    def selects(self, files: Iterable[str]) -> bool:
        """Return whether a project with these files is one that the fix is limited to (``paths``)."""
        paths = self.settings.paths
        return not paths or any(_is_below(file, folder) for file in files for folder in paths)

    def check_paths(self) -> None:
        """Raise RepositoryError if the fix is limited to a folder in which nothing is tracked."""
        for folder in self.settings.paths:
            if not any(_is_below(path, folder) for path in self.tracked_files):
                raise RepositoryError(
                    f"--path {folder}: no file below it is tracked in {self.root}.",
                    next_step="Name a folder relative to the root of the repository.",
                    kind="no_such_path",
                )

    def _bytes(self, path: str) -> bytes:
        """Return a file's bytes as committed. Raises OSError, RepositoryError. A pipe is not opened: that
        would block for ever."""
        odd = self.odd_names.get(path)
        location = self.tree.locate(path if odd is None else odd.real)
        status = location.stat()
        if not stat.S_ISREG(status.st_mode):
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "no plain file"
            raise RepositoryError(
                f"{path!r} is {what}.",
                next_step="Only text files are read and edited; a submodule is a repository of its own.",
            )
        if status.st_size > MAX_FILE_BYTES:
            raise RepositoryError(
                f"{path!r} is larger than {MAX_FILE_BYTES:,} bytes.",
                next_step="Files of this size are not edited.",
            )
        return self.as_committed(path, location.read_bytes())

    def as_committed(self, path: str, content: bytes) -> bytes:
        """Return a file's bytes with the line ends that git commits."""
        return content.replace(b"\r\n", b"\n") if path in self.laid_out_with_crlf else content

    @cached_property
    def _made(self) -> dict[object, Any]:
        return {}

    @cached_property
    def _tracked(self) -> frozenset[str]:
        return frozenset(self.tracked_files)


def _is_below(path: str, folder: str) -> bool:
    return folder == "." or path == folder or path.startswith(f"{folder}/")
