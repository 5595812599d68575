"""Settings that a user or a repository makes once for all runs: keys, where each may be set, which counts.

::

    [tool.fallback-tier]
    model = "claude-sonnet-4-5"         # only in a user's file: it decides what is spent
    max_usd = 2
    release_age = 7
    test_command = "make test"          # or a list: how the project is tested, a line for a shell
    test_timeout_s = 1200               # wall clock of one run of it

    [[tool.fallback-tier.gates]]
    name = "lint"                       # unique, and no built-in gate's
    command = ["ruff", "check", "."]    # an argument list, no shell; run in the root, in the sandbox
    timeout_s = 60                      # wall clock of one run
    required = true                     # false: a failure is reported, and fails nothing
    compare_base = true                 # what fails at the base commit too says nothing about the patch

    [[tool.fallback-tier.ignore]]       # of `scan`, as severity and production are
    id = "GHSA-jjg7-2v5v-x38h"          # or an alias
    reason = "no untrusted input"
    until = 2026-12-31                  # the last day on which it is ignored

``OwnSettings`` declares every key, with its option, its variable and whether a repository may set it. For
each key the first of these that has it counts (``decide``, ADR-0135): an option, a variable, the file of
``--config``, the user's file, the repository's file, the default.

A repository's file is ``.fallback-tier.toml`` or ``pyproject.toml`` at the root of the *base commit*, read
through git's objects. Never from the working tree, and never from the patched tree: a patch can't choose
what it is judged by. It is untrusted text: a key that decides where data or money goes is refused there.
With ``--config`` it is not read.
"""

import difflib
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    JsonValue,
    StrictBool,
    StrictInt,
    StrictStr,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from fallback_audit.disk_errors import blamed
from fallback_audit.event_types import Dollars
from fallback_audit.frozen import Frozen
from fallback_tier.committed import CommittedFiles
from fallback_tier.errors import ConfigurationError, RepositoryError, SettingError
from fallback_tier.execution import ClientRunner
from fallback_tier.files.inputs import open_named, parse_toml
from fallback_tier.repo import Folders, ReleaseAge, RepoContext, Settings, TestLines, TestSeconds

#: Most bytes of a settings file, or a pyproject.toml with our table: a megabyte of TOML takes seconds.
MAX_SETTINGS_BYTES = 1_000_000

#: Most gates of the user's own: each is a command per attempt, at the base commit too if it fails.
MAX_GATES = 16

#: Most words of one command, and characters of one word: room for a list of files, not for a program.
MAX_WORDS = 100
MAX_WORD_CHARS = 2_000

#: Wall clock seconds of one gate: the longest is an hour, as CI services have it for a step.
MAX_TIMEOUT_S = 3_600.0
DEFAULT_TIMEOUT_S = 600.0

#: Most advisories that a file ignores: far more than a team gives reasons for.
MAX_IGNORED = 1_000

#: The product's table, in each of the files.
_TABLE = ("tool", "fallback-tier")

OWN_FILE, SHARED_FILE = ".fallback-tier.toml", "pyproject.toml"

#: No program can get an argument with a NUL in it (execve(2)).
_Word = Annotated[
    StrictStr, StringConstraints(min_length=1, max_length=MAX_WORD_CHARS, pattern=r"^[^\x00]+$")
]

#: A model's name, or an address.
_Text = Annotated[
    StrictStr,
    StringConstraints(min_length=1, max_length=MAX_WORD_CHARS, pattern=r"^[^\x00-\x1f]+$"),
]


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _as_amount(value: object) -> object:
    """Return a number of dollars as text, as it is written: caps are decimals."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


_Amount = Annotated[Dollars, BeforeValidator(_as_amount)]
_Count = Annotated[StrictInt, Field(ge=0)]


class GateSettings(Frozen):
    """One gate of the user's own."""

    name: Annotated[StrictStr, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,39}$")] = Field(
        description="a name of its own: small letters, digits, - and _", examples=["lint"]
    )
    command: Annotated[tuple[_Word, ...], Field(min_length=1, max_length=MAX_WORDS)] = Field(
        description=f"a list of words, 1 to {MAX_WORDS}, that is run without a shell",
        examples=[["ruff", "check", "."]],
    )
    timeout_s: Annotated[float, Field(strict=True, gt=0, le=MAX_TIMEOUT_S, allow_inf_nan=False)] = (
        Field(
            DEFAULT_TIMEOUT_S,
            description=f"a number of seconds up to {MAX_TIMEOUT_S:,.0f}",
            examples=[60],
        )
    )
    required: StrictBool = Field(
        default=True, description="true, or false: a failure is reported only", examples=[False]
    )
    compare_base: StrictBool = Field(
        default=True,
        description="true, or false: what fails at the base commit too fails the patch",
        examples=[False],
    )


def _as_day(value: object) -> object:
    """Return a day as TOML has it, or from text. Raises ValueError for anything else, such as a number."""
    if isinstance(value, str):
        return date.fromisoformat(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    raise ValueError("not a date")


class Ignored(Frozen):
    """An advisory that a person decided to leave, by its id or an alias, and until when."""

    id: Annotated[StrictStr, StringConstraints(min_length=1, max_length=200)] = Field(
        description="the id or an alias of an advisory", examples=["GHSA-jjg7-2v5v-x38h"]
    )
    reason: Annotated[StrictStr, StringConstraints(min_length=1, max_length=500)] = Field(
        description="why it is left, up to 500 characters", examples=["no untrusted input"]
    )
    until: Annotated[date, BeforeValidator(_as_day)] = Field(
        description="the last day on which it is ignored", examples=["2026-12-31"]
    )

    def holds_on(self, day: date) -> bool:
        """Return whether it is still ignored on this day."""
        return day <= self.until


def ignored_of(text: str) -> Ignored:
    """Return what ``ID,DATE,REASON`` states. Raises ValueError if a part is missing or not a date."""
    name, _, rest = text.partition(",")
    day, _, reason = rest.partition(",")
    return Ignored.model_validate(
        {"id": name.strip(), "until": day.strip(), "reason": reason.strip()}
    )


def _ignored_of_lines(text: str) -> tuple[Ignored, ...]:
    """Return ignored advisories, one per line."""
    return tuple(ignored_of(line) for line in text.splitlines() if line.strip())


def _boolean_of(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("neither true nor false")
    return text == "true"


#: Severities that a floor may be, lowest first.
SeverityFloor = Literal["none", "low", "medium", "high", "critical"]


@dataclass(frozen=True)
class Key:
    """Other sources of a setting. ``option``: of ``command``, empty if it has none. ``in_repositories``: a
    repository's file may set it; what that says is untrusted text (ADR-0135).

    If a variable is not written as the value is, ``of_text`` reads it and raises ValueError, ``form``
    completes "it must be …", and ``text`` is an example.
    """

    option: str = ""
    in_repositories: bool = False
    command: str = "fix"
    of_text: Callable[[str], object] | None = None
    form: str = ""
    text: str = ""


class OwnSettings(Frozen):
    """Everything that the table may say. A field's description completes "it must be …"."""

    model: Annotated[_Text | None, Key("--model")] = Field(
        default=None,
        description="the name of a Messages API model, or local:FILE.gguf",
        examples=["claude-sonnet-4-5"],
    )
    base_url: Annotated[_Text | None, Key("--base-url")] = Field(
        default=None,
        description="the address of a server that speaks the Messages API",
        examples=["http://127.0.0.1:8080"],
    )
    judge_model: Annotated[_Text | None, Key("--judge-model")] = Field(
        default=None,
        description="the name of the model that judges plans",
        examples=["claude-opus-4-1"],
    )
    judge_base_url: Annotated[_Text | None, Key("--judge-base-url")] = Field(
        default=None,
        description="the address of the judge's server",
        examples=["http://127.0.0.1:8081"],
    )
    max_usd: Annotated[_Amount | None, Key("--max-usd")] = Field(
        default=None, description="an amount of dollars that a fix may use", examples=[2.5]
    )
    max_usd_per_day: Annotated[_Amount | None, Key("--max-usd-per-day")] = Field(
        default=None,
        description="an amount of dollars for all fixes of a UTC day",
        examples=[20],
    )
    max_tokens: Annotated[_Count | None, Key("--max-tokens")] = Field(
        default=None, description="a number of tokens that a fix may use", examples=[200_000]
    )
    max_tokens_per_day: Annotated[_Count | None, Key("--max-tokens-per-day")] = Field(
        default=None,
        description="a number of tokens for all fixes of a UTC day",
        examples=[2_000_000],
    )
    release_age: Annotated[ReleaseAge | None, Field(strict=True), Key("--release-age", True)] = (
        Field(default=None, description="a number of days from 1 to 3,650", examples=[7])
    )
    test_command: Annotated[TestLines, BeforeValidator(_as_list), Key("--test-command", True)] = (
        Field(
            default=(),
            description="a line for a shell, or a list of up to 8",
            examples=["make test", ["make unit", "make integration"]],
        )
    )
    paths: Annotated[Folders, BeforeValidator(_as_list), Key("--path", True)] = Field(
        default=(),
        description="a folder of the repository, relative to its root, or a list of up to 64",
        examples=["packages/web", ["packages/web", "tools"]],
    )
    test_timeout_s: Annotated[TestSeconds | None, Key("--test-timeout", True)] = Field(
        default=None, description="a number of seconds up to 3,600", examples=[1200]
    )
    gates: Annotated[tuple[GateSettings, ...], Field(max_length=MAX_GATES), Key("", True)] = Field(
        default=(),
        description=f"up to {MAX_GATES} tables, each with name and command",
        examples=[[{"name": "lint", "command": ["ruff", "check", "."]}]],
    )
    severity: Annotated[SeverityFloor | None, Key("--severity", True, "scan")] = Field(
        default=None,
        description="the lowest severity that a scan shows: none, low, medium, high or critical",
        examples=["high"],
    )
    production: Annotated[
        StrictBool,
        Key("--production", True, "scan", _boolean_of, form="true or false", text="true"),
    ] = Field(
        default=False,
        description="true (a scan leaves out what is for development alone), or false",
        examples=[True],
    )
    ignore: Annotated[
        tuple[Ignored, ...],
        Field(max_length=MAX_IGNORED),
        Key(
            "--ignore",
            True,
            "scan",
            _ignored_of_lines,
            form="ID,DATE,REASON, one per line",
            text="GHSA-jjg7-2v5v-x38h,2026-12-31,no untrusted input",
        ),
    ] = Field(
        default=(),
        description=f"up to {MAX_IGNORED:,} tables, each with id, reason and until",
        examples=[
            [{"id": "GHSA-jjg7-2v5v-x38h", "reason": "no untrusted input", "until": "2026-12-31"}]
        ],
    )

    def completing(self, settings: Settings) -> Settings:
        """Return the settings of an attempt, completed by these; what is set already counts."""
        return settings.model_copy(
            update={
                "test_commands": settings.test_commands or self.test_command,
                "test_timeout_s": settings.test_timeout_s or self.test_timeout_s,
                "release_age_days": settings.release_age_days or self.release_age,
                "paths": settings.paths or self.paths,
            }
        )


#: Every key, in the order in which they are shown.
SETTING_KEYS: Mapping[str, Key] = {
    name: next(key for key in field.metadata if isinstance(key, Key))
    for name, field in OwnSettings.model_fields.items()
}


def variable_of(key: str) -> str:
    """Return the variable of a key, or an empty text: tables have none."""
    return f"FALLBACK_TIER_{key.upper()}" if SETTING_KEYS[key].option else ""


def destination_of(key: str) -> str:
    """Return the name that argparse gives the value of a key's option, or an empty text if it has none."""
    return SETTING_KEYS[key].option.removeprefix("--").replace("-", "_")


# The choice of the value that counts.


class Source(StrEnum):
    """Where a value comes from, the first that counts first."""

    OPTION = "option"
    VARIABLE = "variable"
    GIVEN_FILE = "given_file"
    USERS_FILE = "users_file"
    REPOSITORY = "repository"
    DEFAULT = "default"


class SettingsFile(Frozen):
    """A file as it was read. ``name``: as a person knows it; ``lines``: of each key that it sets, from 1;
    0: not known."""

    name: str
    source: Source
    own: OwnSettings
    lines: dict[str, int]

    def where(self, key: str) -> str:
        """Return ``FILE:LINE``, or the file's name if the line is not known."""
        line = self.lines.get(key, 0)
        return f"{self.name}:{line}" if line else self.name


class Setting(Frozen):
    """What counts for a key, and why. ``where``: the option, the variable or ``FILE:LINE``; empty: the
    default."""

    key: str
    value: JsonValue
    source: Source
    where: str = ""


class ResolvedSettings(Frozen):
    """The value of each key, and its source."""

    own: OwnSettings
    settings: tuple[Setting, ...]

    def has(self, key: str) -> bool:
        """Return whether anything but the default sets it."""
        return key in self.own.model_fields_set

    def over(self, file: SettingsFile | None) -> "ResolvedSettings":
        """Return these settings, with those of a repository's file for the keys that nothing else sets."""
        if file is None:
            return self
        added = {
            key: getattr(file.own, key) for key in file.own.model_fields_set if not self.has(key)
        }
        settings = tuple(
            Setting(
                key=setting.key,
                value=_plain(added[setting.key]),
                source=file.source,
                where=file.where(setting.key),
            )
            if setting.key in added
            else setting
            for setting in self.settings
        )
        own_values = {key: getattr(self.own, key) for key in self.own.model_fields_set}
        return ResolvedSettings(
            own=OwnSettings.model_construct(**{**own_values, **added}), settings=settings
        )


def decide(
    options: Mapping[str, object], environment: Mapping[str, str], *files: SettingsFile
) -> ResolvedSettings:
    """Return what counts for each key: of options, variables, then ``files`` in Source's order.

    ``options``: by key, validated. An empty variable counts as not set. Raises SettingError for a variable
    that is not valid, without its value: that may be an address with a password.
    """
    ordered = sorted(files, key=lambda file: list(Source).index(file.source))
    values: dict[str, Any] = {}
    settings = []
    for key in SETTING_KEYS:
        value, source, where = _first(key, options, environment, ordered)
        if source is not Source.DEFAULT:
            values[key] = value
        settings.append(Setting(key=key, value=_plain(value), source=source, where=where))
    # Each is validated already; an option is refused where it is read, with its own message.
    return ResolvedSettings(own=OwnSettings.model_construct(**values), settings=tuple(settings))


def _first(
    key: str,
    options: Mapping[str, object],
    environment: Mapping[str, str],
    files: Sequence[SettingsFile],
) -> tuple[Any, Source, str]:
    variable = variable_of(key)
    if options.get(key) not in (None, "", (), []):
        return options[key], Source.OPTION, SETTING_KEYS[key].option
    if text := environment.get(variable, ""):
        return _of_variable(key, variable, text), Source.VARIABLE, variable
    for file in files:
        if key in file.own.model_fields_set:
            return getattr(file.own, key), file.source, file.where(key)
    return OwnSettings.model_fields[key].default, Source.DEFAULT, ""


def _of_variable(key: str, variable: str, text: str) -> object:
    """Return the value of a variable's text, as the key's option would have it: numbers as numbers."""
    declared = SETTING_KEYS[key]
    for value in _readings(text, declared):
        try:
            return getattr(OwnSettings.model_validate({key: value}), key)
        except ValidationError:
            continue
    example = declared.text or str(_example(OwnSettings, key))
    raise SettingError(
        f"{variable}: it must be {declared.form or OwnSettings.model_fields[key].description}.",
        next_step=f"For example: {variable}={shlex.quote(example)}",
        kind="bad_value",
        source=variable,
        key=key,
    )


def _readings(text: str, declared: Key) -> Iterator[object]:
    """Yield the values that the text of a variable may mean, the likeliest first."""
    if declared.of_text is None:
        yield text
        yield json.loads(text) if re.fullmatch(r"0|[1-9][0-9]*", text) else text
        return
    try:
        yield declared.of_text(text)
    except ValueError:
        return


def _plain(value: Any) -> JsonValue:
    plain: JsonValue = TypeAdapter(Any).dump_python(value, mode="json")
    return plain


# Files.


def of_file(path: Path) -> OwnSettings:
    """Return the settings in a user's own file. Raises ConfigurationError."""
    return read_file(path).own


def read_file(path: Path, source: Source = Source.GIVEN_FILE) -> SettingsFile:
    """Read a user's own file. Raises ConfigurationError."""
    try:
        with open_named(path) as file:
            content = file.read(MAX_SETTINGS_BYTES + 1)
        _check_size(str(path), content)
        text = content.decode("utf-8")
    except OSError as error:
        unfit = _unfit(str(path), error.strerror or "can't be read", kind="unreadable")
        raise blamed(error, str(path), unfit) from error
    except UnicodeDecodeError as error:
        raise _unfit(str(path), f"not UTF-8 (byte {error.start})", kind="not_utf8") from error
    return _read(str(path), text, source, shared=False)


def of_base(repo: RepoContext, clients: ClientRunner) -> OwnSettings:
    """Return the settings in the base commit, ignoring the working tree. Raises as ``read_base``."""
    file = read_base(repo, clients)
    return OwnSettings() if file is None else file.own


def read_base(repo: RepoContext, clients: ClientRunner) -> SettingsFile | None:
    """Read the base commit's file, ignoring the working tree; None if it sets nothing.

    Raises ConfigurationError, also for a key that no repository may set; RepositoryError if a file of it
    exists, may have settings, and can't be read.
    """
    files, commit = CommittedFiles(repo.root, clients), repo.base_commit
    by_name: dict[str, SettingsFile] = {}
    for name in sorted(files.among(commit, OWN_FILE, SHARED_FILE)):
        text = _committed(files, commit, name)
        # A pyproject.toml without settings for this product need not be valid.
        if name == OWN_FILE or _TABLE[-1] in text:
            _check_size(name, text.encode("utf-8"))
            file = _read(
                f"{name} of commit {commit[:12]}",
                text,
                Source.REPOSITORY,
                shared=name == SHARED_FILE,
            )
            by_name |= {name: file} if file.own.model_fields_set else {}
    if len(by_name) > 1:
        raise ConfigurationError(
            f"commit {commit[:12]}: {'.'.join(_TABLE)} is in {' and in '.join(by_name)}.",
            next_step="Keep one of them, or name a file with --config.",
            kind="two_files",
        )
    return next(iter(by_name.values()), None)


def _check_size(name: str, content: bytes) -> None:
    if len(content) > MAX_SETTINGS_BYTES:
        raise _unfit(name, f"larger than {MAX_SETTINGS_BYTES:,} bytes", kind="too_large")


def _committed(files: CommittedFiles, commit: str, name: str) -> str:
    try:
        return files.text(commit, name)
    except RepositoryError:
        if name == OWN_FILE or _TABLE[-1] in files.glimpse(commit, name):
            raise
        return ""  # it concerns other tools


def check_names(gates: Sequence[GateSettings], taken: Collection[str]) -> None:
    """Raise ConfigurationError if two gates, or one and a built-in one, have the same name."""
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


def entry_for(command: str, folder: str) -> str:
    """Return the entry of a gate that runs a shell's line in a folder, for users to copy."""
    line = command if folder == "." else f"cd {shlex.quote(folder)} && {command}"
    arguments = ", ".join(
        json.dumps(argument, ensure_ascii=False) for argument in ("sh", "-c", line)
    )
    return f'[[{".".join(_TABLE)}.gates]]\nname = "project-tests"\ncommand = [{arguments}]\n'


def _read(name: str, text: str, source: Source, *, shared: bool) -> SettingsFile:
    text = text.removeprefix("\ufeff")
    try:
        table: Any = parse_toml(text)
    except (ValueError, RecursionError) as error:
        match = re.search(r"at line (\d+)", str(error))
        raise _unfit(
            name, f"not TOML: {error}", kind="not_toml", line=int(match[1]) if match else 0
        ) from error
    lines = _lines_of(text)
    for depth, key in enumerate(_TABLE):
        # A file for this product alone has no other tables: a misspelt one is an error, not nothing.
        other_tables = [] if shared else [name for name in table if name != key]
        if other_tables:
            raise _unknown(name, (*_TABLE[:depth], other_tables[0]), lines)
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise _wrong(name, _TABLE[: depth + 1], lines, "it must be a table")
    try:
        settings = OwnSettings.model_validate(table)
    except ValidationError as error:
        raise _fault(name, error, lines) from error
    check_names(settings.gates, ())
    line_by_key = {key: _line(lines, (*_TABLE, key)) for key in settings.model_fields_set}
    file = SettingsFile(name=name, source=source, own=settings, lines=line_by_key)
    if source is Source.REPOSITORY:
        _check_repositorys(file)
    return file


def _check_repositorys(file: SettingsFile) -> None:
    """Raise SettingError if a repository's file sets what only a user may."""
    for key, declared in SETTING_KEYS.items():
        if key in file.own.model_fields_set and not declared.in_repositories:
            raise SettingError(
                f"{file.where(key)}: tool.fallback-tier.{key}: no repository may set it.",
                next_step=f"Remove it there, and give {declared.option}, or set it in your own file "
                "(`fallback-tier config` names it).",
                kind="not_for_repositories",
                source=file.name,
                line=file.lines.get(key, 0),
                key=f"tool.fallback-tier.{key}",
            )


# Faults in a file.

#: Keys that are lists of tables, and the model of each entry.
_ENTRIES: Mapping[str, type[BaseModel]] = {"gates": GateSettings, "ignore": Ignored}

_Path = tuple[str | int, ...]


def _fault(name: str, error: ValidationError, lines: Mapping[_Path, int]) -> SettingError:
    """Return the first fault. An unknown key comes before a wrong value, which may only mean that a
    misspelt key is absent."""
    faults = error.errors(include_url=False, include_input=False)
    fault = next((fault for fault in faults if fault["type"] == "extra_forbidden"), faults[0])
    path: _Path = (*_TABLE, *fault["loc"])
    if fault["type"] == "extra_forbidden":
        return _unknown(name, path, lines)
    model, key = _declared(fault["loc"])
    described = model.model_fields[key].description
    if fault["type"] == "missing":
        return _wrong(name, path, lines, f"it is required: {described}", model, key, "missing")
    return _wrong(name, path, lines, f"it must be {described}", model, key)


def _declared(loc: _Path) -> tuple[type[BaseModel], str]:
    """Return the model and the field that a location in the table is about."""
    names = [part for part in loc if isinstance(part, str)]
    if len(names) > 1 and names[0] in _ENTRIES:
        return _ENTRIES[names[0]], names[1]
    return OwnSettings, names[0]


def _unknown(name: str, path: _Path, lines: Mapping[_Path, int]) -> SettingError:
    written = str(path[-1])[:_SHOWN_NAME_CHARS]
    if path[: len(_TABLE)] != _TABLE:  # outside of the product's table
        key = _nearest(written)
        near = {"tool": "tool"}.get(written, "") or ".".join((*_TABLE, key) if key else _TABLE)
        step = f"Only [{'.'.join(_TABLE)}] is read. Did you mean {near}?"
    else:
        inside = len(path) > len(_TABLE) + 1
        model = _ENTRIES.get(str(path[len(_TABLE)]), OwnSettings) if inside else OwnSettings
        near = _nearest(written, model)
        keys = ", ".join(model.model_fields)
        step = (
            f"Did you mean {near}? For example: {_line_of_toml(model, near)}"
            if near
            else f"Known keys: {keys}."
        )
    line = _line(lines, path)
    return SettingError(
        f"{_at(name, line)}: {_dotted(path)}: unknown key.",
        next_step=step,
        kind="unknown_key",
        source=name,
        line=line,
        key=_dotted(path),
        nearest=near,
    )


def _nearest(written: str, model: type[BaseModel] = OwnSettings) -> str:
    """Return the key that is likely meant, or an empty text if none is near."""
    word = written.lower().replace("-", "_")
    return next(iter(difflib.get_close_matches(word, model.model_fields, n=1)), "")


def _wrong(
    name: str,
    path: _Path,
    lines: Mapping[_Path, int],
    why: str,
    model: type[BaseModel] = OwnSettings,
    key: str = "gates",
    kind: str = "bad_value",
) -> SettingError:
    line = _line(lines, path)
    return SettingError(
        f"{_at(name, line)}: {_dotted(path)}: {why}.",
        next_step=f"For example: {_line_of_toml(model, key)}",
        kind=kind,
        source=name,
        line=line,
        key=_dotted(path),
    )


def _unfit(name: str, why: str, *, kind: str, line: int = 0) -> SettingError:
    return SettingError(
        f"{_at(name, line)}: {why}.",
        next_step="Correct it, or name another file. For example: [tool.fallback-tier] and below it "
        f"{_line_of_toml(OwnSettings, 'test_command')}",
        kind=kind,
        source=name,
        line=line,
    )


def _at(name: str, line: int) -> str:
    return f"{name}:{line}" if line else name


def _dotted(path: _Path) -> str:
    return ".".join(str(name)[:_SHOWN_NAME_CHARS] for name in path)


def _example(model: type[BaseModel], key: str) -> Any:
    return (model.model_fields[key].examples or [""])[0]


def _line_of_toml(model: type[BaseModel], key: str) -> str:
    return f"{key} = {_toml(_example(model, key))}"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value)


#: Most names of a path in a message: down to a word of a gate's command, the deepest place that is named.
_DEEPEST = 6

#: Most characters of a name that a message shows: a key may be as long as its file.
_SHOWN_NAME_CHARS = 80

#: Tokens of a line of TOML: strings, comments, brackets, the sign before a value, ends of lines.
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}=\n]'
    r"|[^\s\"'#\[\]{}=]+|[^\S\n]+|.",
    re.DOTALL,
)


def _lines_of(text: str) -> dict[_Path, int]:
    """Return the line (from 1) of each key and table of a text that is TOML; what is inside a value, such
    as an inline table, has that value's. TOML parsers report no positions."""
    lines: dict[_Path, int] = {}
    for header, start, prefix in _statements(text):
        for depth in range(1, len(prefix) + 1):
            lines.setdefault(prefix[:depth], start)
        if header:
            lines[prefix] = start
    return lines


def _statements(text: str) -> Iterator[tuple[bool, int, _Path]]:
    """Yield, for each header and key, whether it is a header, its line, and its path."""
    prefix: _Path = ()
    counts: dict[_Path, int] = {}
    pieces: list[str] = []
    line = start = 1
    depth, in_value = 0, False
    for token in _TOKEN.finditer(f"{text}\n"):
        piece = token[0]
        if in_value:
            depth += (piece in "[{") - (piece in "]}") if len(piece) == 1 else 0
            if piece == "\n" and not depth:
                in_value, pieces = False, []
        elif piece == "=":
            if prefix[: len(_TABLE)] == _TABLE[: len(prefix)]:  # not in another tool's table
                yield False, start, (*prefix, *_names("".join(pieces)))[:_DEEPEST]
            in_value = True
        elif piece == "\n":
            statement, pieces = "".join(pieces).strip(), []
            if statement:
                is_list = statement.startswith("[[")
                path: _Path = _names(statement[2:-2] if is_list else statement[1:-1])
                if is_list:
                    counts[path] = counts.get(path, -1) + 1
                    path = (*path, counts[path])
                prefix = path[:_DEEPEST]
                yield True, start, prefix
        elif not piece.startswith("#") and (pieces or piece.strip()):
            start = start if pieces else line
            pieces.append(piece)
        line += piece.count("\n")


def _names(written: str) -> tuple[str, ...]:
    """Return the names in a dotted key: ``a."b c".d`` has three."""
    try:
        table: Any = parse_toml(f"{written} = 0")
    except tomllib.TOMLDecodeError:
        return ()
    names = []
    while isinstance(table, dict):
        ((name, table),) = table.items()
        names.append(name)
    return tuple(names)


def _line(lines: Mapping[_Path, int], path: _Path) -> int:
    """Return the line of a path, or of what it is in; 0 if it is not known."""
    near = (lines[path[:depth]] for depth in range(len(path), 0, -1) if path[:depth] in lines)
    return next(near, 0)


def schema() -> dict[str, Any]:
    """Return the JSON schema of ``.fallback-tier.toml`` and the user's file, for editors."""
    table = OwnSettings.model_json_schema(ref_template="#/$defs/{model}")
    definitions = table.pop("$defs", {})
    for key, field in table["properties"].items():
        field.pop("default", None)
        if not SETTING_KEYS[key].in_repositories:
            field["description"] += "; no repository may set it"
    line = {"type": "string", "minLength": 1}
    for key in ("test_command", "paths"):
        listed = table["properties"][key]
        text = {name: listed.pop(name) for name in ("description", "examples", "title")}
        table["properties"][key] = {**text, "anyOf": [line, listed]}
    for key in ("max_usd", "max_usd_per_day"):
        table["properties"][key]["anyOf"].insert(0, {"type": "number", "minimum": 0})

    def inside(name: str, subschema: dict[str, Any]) -> dict[str, Any]:
        return {"type": "object", "properties": {name: subschema}, "additionalProperties": False}

    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{OWN_FILE} of fallback-tier",
        **inside(_TABLE[0], inside(_TABLE[1], {"$ref": "#/$defs/Settings"})),
        "$defs": {"Settings": table, **definitions},
    }
