"""What a repository or a user decides of how patches are judged, as ``[tool.fallback-tier]`` describes it.

::

    [tool.fallback-tier]
    test_command = "make test"          # or a list: how the project is tested, a line for a shell
    test_timeout_s = 1200               # wall clock of one run of it

    [[tool.fallback-tier.gates]]
    name = "lint"                       # unique, and no built-in gate's
    command = ["ruff", "check", "."]    # an argument list, no shell; run in the root, in the sandbox
    timeout_s = 60                      # wall clock of one run
    required = true                     # false: a failure is told, and fails nothing
    compare_base = true                 # what fails at the base commit too tells nothing of the patch

It is read from a file that the person names, which then counts alone, or from the *base commit*:
``.fallback-tier.toml`` or ``pyproject.toml`` at its root, through git's objects. Never from the working
tree, and never from the patched tree: a patch can't choose what it is judged by.
"""

import json
import shlex
import tomllib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    Field,
    StrictBool,
    StrictStr,
    StringConstraints,
    ValidationError,
)

from fallback_audit.disk_errors import blamed
from fallback_audit.frozen import Frozen
from fallback_tier.errors import ConfigurationError, RepositoryError, first_fault
from fallback_tier.execution import ClientRunner
from fallback_tier.files.inputs import open_named
from fallback_tier.gates.builtin.committed import CommittedFiles
from fallback_tier.limits import MAX_FILE_BYTES
from fallback_tier.repo import RepoContext, Settings, TestLines, TestSeconds

#: Gates of somebody's own: each is a command for every attempt, at the base commit too where it fails.
MAX_GATES = 16

#: Words of one command, and characters of one word: room for a list of files, not for a program.
MAX_WORDS = 100
MAX_WORD_CHARS = 2_000

#: Wall clock of one gate: the longest is an hour, as CI services have it for a step.
MAX_TIMEOUT_S = 3_600.0
DEFAULT_TIMEOUT_S = 600.0

#: The table that is ours, in each of the places.
_TABLE = ("tool", "fallback-tier")

OWN_FILE, SHARED_FILE = ".fallback-tier.toml", "pyproject.toml"

#: No program can be told a word with a NUL in it (execve(2)).
_Word = Annotated[
    StrictStr, StringConstraints(min_length=1, max_length=MAX_WORD_CHARS, pattern=r"^[^\x00]+$")
]


class GateSettings(Frozen):
    """One gate of the user's own."""

    name: Annotated[StrictStr, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
    command: Annotated[tuple[_Word, ...], Field(min_length=1, max_length=MAX_WORDS)]
    timeout_s: Annotated[float, Field(strict=True, gt=0, le=MAX_TIMEOUT_S, allow_inf_nan=False)] = (
        DEFAULT_TIMEOUT_S
    )
    required: StrictBool = True
    compare_base: StrictBool = True


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def entry_for(command: str, folder: str) -> str:
    """Return the entry of a gate that runs a shell's line in a folder, for a person to copy."""
    line = command if folder == "." else f"cd {shlex.quote(folder)} && {command}"
    words = ", ".join(json.dumps(word, ensure_ascii=False) for word in ("sh", "-c", line))
    return f'[[{".".join(_TABLE)}.gates]]\nname = "project-tests"\ncommand = [{words}]\n'


class OwnSettings(Frozen):
    """Everything that the table may say."""

    test_command: Annotated[TestLines, BeforeValidator(_as_list)] = ()
    test_timeout_s: TestSeconds | None = None
    gates: Annotated[tuple[GateSettings, ...], Field(max_length=MAX_GATES)] = ()

    def completing(self, settings: Settings) -> Settings:
        """Return the settings of an attempt; what they say already counts."""
        return settings.model_copy(
            update={
                "test_commands": settings.test_commands or self.test_command,
                "test_timeout_s": settings.test_timeout_s or self.test_timeout_s,
            }
        )


def of_file(path: Path) -> OwnSettings:
    """Return what a person's own file describes. Raises ConfigurationError."""
    try:
        with open_named(path) as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise _unfit(
                str(path), "the file", f"larger than {MAX_FILE_BYTES:,} bytes", kind="too_large"
            )
        text = content.decode("utf-8")
    except OSError as error:
        unfit = _unfit(str(path), "the file", error.strerror or "can't be read", kind="unreadable")
        raise blamed(error, str(path), unfit) from error
    except UnicodeDecodeError as error:
        raise _unfit(
            str(path), "the file", f"not UTF-8 (byte {error.start})", kind="not_utf8"
        ) from error
    return _read(str(path), text, shared=False)


def of_base(repo: RepoContext, clients: ClientRunner) -> OwnSettings:
    """Return what the base commit describes, the working tree aside.

    Raises ConfigurationError; RepositoryError where a file of it is there, may describe some, and can't be
    read.
    """
    files, commit = CommittedFiles(repo.root, clients), repo.base_commit
    found: dict[str, OwnSettings] = {}
    for name in sorted(files.among(commit, OWN_FILE, SHARED_FILE)):
        text = _committed(files, commit, name)
        # A pyproject.toml that says nothing to us may be as broken as it likes.
        if name == OWN_FILE or _TABLE[-1] in text:
            own = _read(f"{name} of commit {commit[:12]}", text, shared=name == SHARED_FILE)
            found |= {name: own} if own != OwnSettings() else {}
    if len(found) > 1:
        raise _unfit(
            f"commit {commit[:12]}",
            ".".join(_TABLE),
            f"it is in {' and in '.join(found)}",
            kind="two_files",
        )
    return next(iter(found.values()), OwnSettings())


def _committed(files: CommittedFiles, commit: str, name: str) -> str:
    try:
        return files.text(commit, name)
    except RepositoryError:
        if name == OWN_FILE or _TABLE[-1] in files.glimpse(commit, name):
            raise
        return ""  # other tools' business


def check_names(gates: Sequence[GateSettings], taken: Collection[str]) -> None:
    """Raises ConfigurationError where two gates, or one and a built-in one, have the same name."""
    seen: set[str] = set()
    for gate in gates:
        if gate.name in taken or gate.name in seen:
            whose = "a built-in gate" if gate.name in taken else "another gate"
            raise ConfigurationError(
                f"[[tool.fallback-tier.gates]]: {gate.name!r} is the name of {whose} already.",
                next_step="Give each gate a name of its own.",
                kind="built_in_name" if gate.name in taken else "name_taken",
            )
        seen.add(gate.name)


def _read(source: str, text: str, *, shared: bool) -> OwnSettings:
    try:
        table: Any = tomllib.loads(text.removeprefix("\ufeff"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _unfit(source, "the file", f"not TOML: {error}", kind="not_toml") from error
    for depth, key in enumerate(_TABLE):
        # A file that is ours alone has no other tables: a misspelt one is an error, not nothing.
        strange = [] if shared else [name for name in table if name != key]
        if strange:
            where = ".".join((*_TABLE[:depth], strange[0]))
            raise _unfit(source, where, f"unknown key, only {'.'.join(_TABLE)} is read")
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise _unfit(source, ".".join(_TABLE[: depth + 1]), "not a table")
    try:
        own = OwnSettings.model_validate(table)
    except ValidationError as error:
        place, _, why = first_fault(error, "the table").partition(": ")
        raise _unfit(source, ".".join((*_TABLE, place)), why) from error
    check_names(own.gates, ())
    return own


def _unfit(source: str, key: str, why: str, *, kind: str = "") -> ConfigurationError:
    return ConfigurationError(
        f"{source}: {key}: {why}.",
        next_step="Write [[tool.fallback-tier.gates]] with name and command, or test_command, as "
        "docs/usage.md has it (“Add gates of your own”), or name another file with --config.",
        kind=kind,
    )
