"""From parsed options to a Configuration and a proof, with models and keys from the environment."""

import argparse
import getpass
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from fallback_audit.disk_errors import blamed
from fallback_audit.event_types import AgeException
from fallback_audit.vocabulary import AffectedCode, LadderStep
from fallback_tier.budget.meter import BudgetLimits
from fallback_tier.configured import (
    OWN_FILE,
    SETTING_KEYS,
    ResolvedSettings,
    SettingsFile,
    Source,
    decide,
    destination_of,
    read_file,
)
from fallback_tier.errors import ConfigurationError, SettingMissingError, StateFolderError
from fallback_tier.files.folders import users_folder
from fallback_tier.files.inputs import open_named
from fallback_tier.gates.builtin.proof_given import PROOF_TIMEOUT_S, Proof
from fallback_tier.limits import (
    MAX_BEAM_WIDTH,
    MAX_CODE_ROOM_KB,
    MAX_FILE_BYTES,
    MAX_OUTPUT_TOKENS,
    MAX_PATHS_GIVEN,
    MAX_TEST_COMMAND_CHARS,
    MAX_TEST_COMMANDS,
    OUTPUT_TOKENS,
    SMALL_CODE_ROOM_BYTES,
    SMALL_OUTPUT_TOKENS,
    USD_PER_FIX,
)
from fallback_tier.repo import AnswerForm, Settings, Strategy
from fallback_tier.wiring import Configuration, RecordSettings
from fallback_tier.wiring.configuration import answer_form_for, is_local
from fallback_tier.wiring.models import prices
from fallback_tier.wiring.trail import OnViolation

if TYPE_CHECKING:
    from fallback_tier.advisory import OsvLookup


#: The provider's key is never sent to another server: one behind --base-url has a separate variable.
PROVIDER_KEY, OTHER_KEY = "ANTHROPIC_API_KEY", "FALLBACK_TIER_API_KEY"

#: The judge may be behind a third server.
JUDGE_KEY = "FALLBACK_TIER_JUDGE_API_KEY"

#: Locations of the audit trail's parts, for a whole shell or service.
STORE_URL, CHECKPOINTS, KEYS = (
    "FALLBACK_TIER_AUDIT_STORE",
    "FALLBACK_TIER_CHECKPOINTS",
    "FALLBACK_TIER_KEYS",
)

#: Location of the list of campaigns, for a whole shell or service.
FLEET_STORE = "FALLBACK_TIER_FLEET_STORE"

#: The user's file of settings; empty: none is read.
USERS_FILE = "FALLBACK_TIER_CONFIG"

#: … and its name in the user's configuration folder.
USERS_FILE_NAME = "config.toml"

#: The OSV API that identifiers are looked up at, for a whole shell.
ADVISORY_URL = "FALLBACK_TIER_ADVISORY_URL"

#: Why no sandbox is used, as the audit trail records it.
NO_SANDBOX = "--no-sandbox was given"

#: ``--prefer`` → the step.
_PREFERRED = {"parent": LadderStep.PARENT_BUMP, "override": LadderStep.OVERRIDE}


def user_name() -> str:
    """Return the name of the user who runs the command, for --by. Raises ConfigurationError."""
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:  # a container's user often has a number alone
        raise ConfigurationError(
            "The user who runs this command has no name on this machine.",
            next_step="Give --by.",
        ) from error


def state_dir(arguments: argparse.Namespace) -> Path:
    """Return the folder of the audit trail, the evidence and the caches."""
    if arguments.state_dir:
        return as_given(arguments.state_dir)
    return users_folder("state")


def advisory_lookup(arguments: argparse.Namespace) -> "OsvLookup":
    """Return the lookup of identifiers' records: at the option's address, otherwise its variable's,
    otherwise the public database. Raises ConfigurationError if the address is not usable."""
    from fallback_tier.advisory.lookup import FOLDER, OsvLookup
    from fallback_tier.advisory.osv_server import DEFAULT_URL, OsvServer

    return OsvLookup(
        OsvServer(arguments.advisory_url or os.environ.get(ADVISORY_URL) or DEFAULT_URL),
        lambda: state_dir(arguments) / "cache" / FOLDER,
        offline=arguments.offline,
    )


def as_given(path: str) -> Path:
    """Return the absolute form of ``path``, keeping the links that lead to it.

    The keys' folder remembers an audit trail by this path too: a link that is exchanged for one to an older
    copy must not look like another trail. A relative path starts at the shell's PWD, which keeps links;
    ``..`` is taken from the folder that a link leads to, as the kernel does.
    """
    shell_dir = Path(os.environ.get("PWD", ""))
    is_current = shell_dir.is_absolute() and shell_dir.exists() and shell_dir.samefile(Path.cwd())
    parts = ((shell_dir if is_current else Path.cwd()) / path).parts
    result = Path(parts[0])
    for part in parts[1:]:
        result = result.resolve().parent if part == ".." else result / part
    return result


def record(arguments: argparse.Namespace) -> RecordSettings:
    """Return where the audit trail's parts are: an option, otherwise its variable, otherwise the
    default."""

    def option_or_variable(option: str, variable: str) -> str | None:
        return getattr(arguments, option, None) or os.environ.get(variable) or None

    database = option_or_variable("audit_store", STORE_URL)
    checkpoints = option_or_variable("checkpoints", CHECKPOINTS)
    keys_folder = option_or_variable("keys", KEYS)
    return RecordSettings(
        database=SecretStr(database) if database else None,
        checkpoints=as_given(checkpoints) if checkpoints else None,
        keys=as_given(keys_folder) if keys_folder else None,
        on_violation=OnViolation(getattr(arguments, "on_violation", OnViolation.REFUSE)),
        keep_prompts=getattr(arguments, "keep_prompts", False),
    )


def repository_of(arguments: argparse.Namespace) -> Path:
    """Return the root of the checkout that REPO is or is in; a path outside of any is returned as it is,
    and git explains it."""
    return checkout_of(Path(arguments.repository))


def checkout_of(path: Path) -> Path:
    """Return the root of the checkout that this path is or is in, or the path itself if there is none."""
    resolved = path.resolve()
    # A checkout's .git is a folder; a worktree's, and a submodule's, a file.
    for folder in (resolved, *resolved.parents):
        if (folder / ".git").exists():
            return path if folder == resolved else folder
    return path


def users_file() -> Path | None:
    """Return the path of the user's file of settings, or None if none is to be read or there is no home."""
    variable = os.environ.get(USERS_FILE)
    if variable is None:
        try:
            return users_folder("config") / USERS_FILE_NAME
        except StateFolderError:
            return None
    return as_given(variable) if variable else None


def files_of(arguments: argparse.Namespace) -> tuple[SettingsFile, ...]:
    """Read the file of ``--config``, and the user's if it exists. Raises ConfigurationError."""
    config = getattr(arguments, "config", None)
    files = [read_file(Path(config), Source.GIVEN_FILE)] if config else []
    path = users_file()
    # A file that is named must exist; the default one may.
    if path is not None and (path.exists() or os.environ.get(USERS_FILE)):
        files.append(read_file(path, Source.USERS_FILE))
    return tuple(files)


def resolved_settings(arguments: argparse.Namespace, *more: SettingsFile) -> ResolvedSettings:
    """Return what counts for each key of these options, the environment and the files (ADR-0135), and of
    ``more``: a repository's file. Raises ConfigurationError."""
    options = {
        key: getattr(arguments, destination_of(key), None)
        for key in SETTING_KEYS
        if destination_of(key)
    }
    return decide(options, os.environ, *files_of(arguments), *more)


def uncommitted_settings(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield a sentence if the repository has a file of settings that git doesn't track: only what is
    committed counts. Raises RepositoryError."""
    from fallback_tier.inspection import is_tracked

    repository = repository_of(arguments)
    if getattr(arguments, "config", None) or not (repository / OWN_FILE).is_file():
        return
    if not is_tracked(repository, OWN_FILE):
        yield f"{OWN_FILE} is not committed, so it was not read: commit it, or give --config {OWN_FILE}"


def setting_lines(resolved: ResolvedSettings) -> Iterator[str]:
    """Yield a sentence with the source of each setting that is not the default."""
    return (
        f"setting {setting.key}: {setting.where}" for setting in resolved.settings if setting.where
    )


def completed(arguments: argparse.Namespace, resolved: ResolvedSettings) -> argparse.Namespace:
    """Return the options, with the settings that count for those that were not given. Options that a
    command does not have are not added."""
    values = dict(vars(arguments))
    for key in SETTING_KEYS:
        name = destination_of(key)
        if name in values and resolved.has(key):
            values[name] = getattr(resolved.own, key)
    return argparse.Namespace(**values)


def settings(arguments: argparse.Namespace, resolved: ResolvedSettings | None = None) -> Settings:
    """Return the settings of an attempt from options, environment and files. ``resolved``: as for
    ``configuration``. Raises ConfigurationError."""
    return _settings(completed(arguments, resolved or resolved_settings(arguments)))


def _settings(arguments: argparse.Namespace) -> Settings:
    width = getattr(arguments, "beam_width", 1)
    if not 1 <= width <= MAX_BEAM_WIDTH:
        raise ConfigurationError(
            f"--beam-width {width}: a beam keeps 1 to {MAX_BEAM_WIDTH} drafts.",
            next_step="Choose a width in this range.",
        )
    return Settings(
        own_code_budget_bytes=_code_room(arguments),
        max_output_tokens=_output_tokens(arguments),
        effort=getattr(arguments, "effort", None),
        answer_form=_answer_form(arguments),
        offline=arguments.offline,
        allow_hosts=tuple(getattr(arguments, "allow_host", ())),
        release_age_days=getattr(arguments, "release_age", None),
        age_exceptions=_age_exceptions(arguments),
        prefer=_PREFERRED.get(getattr(arguments, "prefer", None) or ""),
        strategy=Strategy(getattr(arguments, "strategy", Strategy.STANDARD)),
        beam_width=width,
        recalls_attempts=getattr(arguments, "recall_attempts", False),
        whose_code=_whose_code(arguments),
        paths=_paths(arguments),
        test_commands=_test_commands(arguments),
        test_timeout_s=getattr(arguments, "test_timeout", None),
        has_own_file=bool(getattr(arguments, "config", None)),
    )


def _paths(arguments: argparse.Namespace) -> tuple[str, ...]:
    paths = tuple(getattr(arguments, "path", ()))
    if len(paths) > MAX_PATHS_GIVEN:
        raise ConfigurationError(
            f"--path was given {len(paths)} times; at most {MAX_PATHS_GIVEN} folders are taken.",
            next_step="Name a folder above some of them.",
            kind="too_many_paths",
        )
    return paths


def _test_commands(arguments: argparse.Namespace) -> tuple[str, ...]:
    commands = tuple(getattr(arguments, "test_command", ()))
    if len(commands) > MAX_TEST_COMMANDS:
        raise ConfigurationError(
            f"--test-command was given {len(commands)} times; at most {MAX_TEST_COMMANDS} are tried.",
            next_step="Join commands with `&&`, or leave some out.",
        )
    for command in commands:
        if not command.strip() or len(command) > MAX_TEST_COMMAND_CHARS:
            raise ConfigurationError(
                f"--test-command {command[:60]!r} is not a command of 1 to {MAX_TEST_COMMAND_CHARS} "
                "characters.",
                next_step="Give a line for a shell, or put a longer one into a script of the repository.",
            )
    return commands


def _age_exceptions(arguments: argparse.Namespace) -> tuple[AgeException, ...]:
    packages: list[str] = getattr(arguments, "age_exception", [])
    reason = getattr(arguments, "because", None)
    if bool(packages) != bool(reason):
        option, missing = ("age-exception", "because") if packages else ("because", "age-exception")
        raise ConfigurationError(
            f"--{option} was given without --{missing}.",
            next_step="Give both: the package, and why its release can't wait.",
            kind="age_exception_incomplete",
        )
    return tuple(AgeException(package=package, reason=reason or "") for package in packages)


def _code_room(arguments: argparse.Namespace) -> int:
    """Return the bytes of own code in a prompt. A model that runs on this machine has a small window."""
    kilobytes: int | None = getattr(arguments, "code_room", None)
    if kilobytes is None:
        return SMALL_CODE_ROOM_BYTES if _is_local(arguments) else Settings().own_code_budget_bytes
    if not 1 <= kilobytes <= MAX_CODE_ROOM_KB:
        raise ConfigurationError(
            f"--code-room {kilobytes}: a prompt shows 1 to {MAX_CODE_ROOM_KB} KB of code.",
            next_step="Choose what the model's window has room for, some 4 bytes a token.",
            kind="bad_code_room",
        )
    return kilobytes * 1_000


def _output_tokens(arguments: argparse.Namespace) -> int:
    tokens: int | None = getattr(arguments, "max_output_tokens", None)
    if tokens is None:
        return SMALL_OUTPUT_TOKENS if _is_local(arguments) else OUTPUT_TOKENS
    if not 1 <= tokens <= MAX_OUTPUT_TOKENS:
        raise ConfigurationError(
            f"--max-output-tokens {tokens}: an answer has 1 to {MAX_OUTPUT_TOKENS} tokens.",
            next_step="Choose how much the model may write, including its thinking.",
            kind="bad_output_tokens",
        )
    return tokens


def _answer_form(arguments: argparse.Namespace) -> AnswerForm:
    if form := getattr(arguments, "answer_form", None):
        return AnswerForm(form)
    strategy = Strategy(getattr(arguments, "strategy", None) or Strategy.STANDARD)
    return answer_form_for(getattr(arguments, "model", None), strategy)


def _is_local(arguments: argparse.Namespace) -> bool:
    return is_local(getattr(arguments, "model", None))


def _whose_code(arguments: argparse.Namespace) -> AffectedCode | None:
    """Return a person's decision on whose code is affected, or None: it is looked up."""
    if getattr(arguments, "own_code", False):
        return AffectedCode.OWN
    return AffectedCode.DEPENDENCY if getattr(arguments, "dependency", False) else None


def configuration(
    arguments: argparse.Namespace, resolved: ResolvedSettings | None = None
) -> Configuration:
    """Return the configuration that options, environment and files describe. ``resolved``: what
    ``resolved_settings`` returned, if it was called before. Raises ConfigurationError."""
    resolved = resolved or resolved_settings(arguments)
    arguments = completed(arguments, resolved)
    attempt_settings = _settings(arguments)
    waiver = NO_SANDBOX if getattr(arguments, "no_sandbox", False) else None
    configured = Configuration(
        state_dir=state_dir(arguments),
        record=record(arguments),
        model=arguments.model,
        base_url=arguments.base_url,
        script=Path(arguments.script) if arguments.script else None,
        judge_model=arguments.judge_model,
        judge_base_url=arguments.judge_base_url,
        judge_script=Path(arguments.judge_script) if arguments.judge_script else None,
        examples=Path(arguments.examples) if arguments.examples else None,
        routing_floor=arguments.routing_floor,
        sandbox_waiver=waiver,
        budget=BudgetLimits(
            usd_per_fix=arguments.max_usd,
            usd_per_day=arguments.max_usd_per_day,
            tokens_per_fix=arguments.max_tokens,
            tokens_per_day=arguments.max_tokens_per_day,
        ),
        price=arguments.price,
        gates=resolved.own.gates
        if attempt_settings.has_own_file or resolved.has("gates")
        else None,
        proof=proof_of(arguments) if hasattr(arguments, "proof") else None,
        settings=attempt_settings,
        require_tests=getattr(arguments, "require_tests", False),
    )
    check_files(configured)
    update = keys(arguments.base_url, arguments.judge_base_url)
    if arguments.max_usd is None and arguments.max_tokens is None:
        update["budget"] = _with_default_cap(configured)
    return configured.model_copy(update=update)


def _with_default_cap(configured: Configuration) -> BudgetLimits:
    """Return the budget, with the default cap in dollars if every model's price is known."""
    models = [name for name in (configured.model, configured.judge_model) if not is_local(name)]
    names = list(filter(None, models))
    if not names or not all(map(prices(configured).knows, names)):
        return configured.budget
    return configured.budget.model_copy(update={"usd_per_fix": USD_PER_FIX})


def cap_in_words(configured: Configuration) -> str | None:
    """Return what bounds the cost of a fix, as a sentence, or None if it uses no model that is paid."""
    if configured.model is None or is_local(configured.model):
        return None
    if (usd := configured.budget.usd_per_fix) is not None:
        return f"This fix may use ${usd} of model calls (--max-usd)."
    if configured.budget.tokens_per_fix is not None:
        return f"This fix may use {configured.budget.tokens_per_fix:,} tokens (--max-tokens)."
    return (
        "The price of a model is not known, so no cap in dollars holds for this fix: name one with --price "
        "and --max-usd, or use --max-tokens."
    )


def check_files(configured: Configuration) -> None:
    """Check that the files that it names exist. Raises SettingMissingError."""
    for option in ("script", "examples", "judge-script"):
        path = getattr(configured, option.replace("-", "_"))
        if path and not path.is_file():
            raise SettingMissingError(
                f"--{option} {path}: there is no such file.", next_step="Check the path."
            )


def keys(base_url: str | None, judge_base_url: str | None) -> dict[str, Any]:
    """Return the keys in the environment, as the fields of a Configuration for these servers."""
    values = {
        name: SecretStr(value)
        for name in (PROVIDER_KEY, OTHER_KEY, JUDGE_KEY)
        if (value := os.environ.get(name))
    }
    return {
        "api_key": values.get(OTHER_KEY if base_url else PROVIDER_KEY),
        "judge_api_key": values.get(JUDGE_KEY if judge_base_url else PROVIDER_KEY),
        "secrets": tuple(values.values()),
    }


def proof_of(arguments: argparse.Namespace) -> Proof | None:
    """Return the proof that the options describe. Raises ConfigurationError, ProofError."""
    if arguments.proof is None:
        for option in ("proof_file", "proof_timeout", "proof_end"):
            if getattr(arguments, option):
                raise ConfigurationError(
                    f"--{option.replace('_', '-')} is about a proof, and no proof is given.",
                    next_step="Give the command that proves the fix with --proof.",
                )
        return None
    files: dict[str, bytes] = {}
    for value in arguments.proof_file:
        source, place = _placed(value)
        if place in files:
            raise ConfigurationError(
                f"--proof-file {value}: another file is to be at {place!r} already.",
                next_step="Say where it goes: --proof-file PATH=PLACE.",
            )
        files[place] = _content(source)
    timeout_s = arguments.proof_timeout or PROOF_TIMEOUT_S
    return Proof(_words(arguments.proof), files, timeout_s, arguments.proof_end or "")


def _words(command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise ConfigurationError(
            f"--proof {command!r} is not a command: {str(error).lower()}.",
            next_step="Quote it as for a shell; none is started, so write `sh -c '...'` to have one.",
        ) from error


def _placed(value: str) -> tuple[Path, str]:
    """Split ``PATH=PLACE``; a path alone, which may have an equals sign, goes to the root by its name."""
    if Path(value).is_file() or "=" not in value:
        return Path(value), Path(value).name
    source, _, place = value.rpartition("=")
    return Path(source), place


def _content(source: Path) -> bytes:
    try:
        with open_named(source) as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        unreadable = ConfigurationError(
            f"--proof-file {source}: {error.strerror}.",
            next_step="Name a file that can be read; --proof-file PATH=PLACE says where it goes.",
        )
        raise blamed(error, f"--proof-file {source}", unreadable) from error
    if len(content) > MAX_FILE_BYTES:
        raise ConfigurationError(
            f"--proof-file {source}: larger than {MAX_FILE_BYTES:,} bytes.",
            next_step="Let the proof make large inputs itself.",
        )
    return content
