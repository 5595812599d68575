"""``fallback-tier config``: the value of each setting that counts, and where it comes from."""

import argparse
import json
import os
import sys

from pydantic import JsonValue

from fallback_audit.frozen import Frozen
from fallback_audit.showing.describe import visible
from fallback_tier.cli import exit_codes
from fallback_tier.cli.options import (
    JUDGE_KEY,
    OTHER_KEY,
    PROVIDER_KEY,
    USERS_FILE,
    repository_of,
    resolved_settings,
    users_file,
)
from fallback_tier.cli.results import print_plain
from fallback_tier.configured import (
    Setting,
    SettingsFile,
    Source,
    schema,
)
from fallback_tier.inspection import committed_settings
from fallback_tier.wiring.configuration import without_password

#: Settings whose value may hold a password.
_ADDRESSES = ("base_url", "judge_base_url")

#: Keys of servers: only whether they are set is shown.
_SECRETS = (PROVIDER_KEY, OTHER_KEY, JUDGE_KEY)


class ConfigShown(Frozen):
    """What ``config --json`` prints. ``keys_set``: whether each variable with a server's key is set."""

    settings: tuple[Setting, ...]
    users_file: str | None
    users_file_exists: bool
    keys_set: dict[str, bool]


def run(arguments: argparse.Namespace) -> int:
    """Print every setting with its source. Raises ConfigurationError, RepositoryError."""
    if arguments.schema:
        sys.stdout.write(json.dumps(schema(), indent=2, ensure_ascii=False) + "\n")
        return exit_codes.OK
    committed = None if arguments.config else _committed(arguments)
    decision = resolved_settings(arguments, *([committed] if committed else []))
    settings = [_shown(setting) for setting in decision.settings]
    path = users_file()
    secrets = {name: bool(os.environ.get(name)) for name in _SECRETS}
    document = ConfigShown(
        settings=tuple(settings),
        users_file=None if path is None else str(path),
        users_file_exists=path is not None and path.exists(),
        keys_set=secrets,
    )
    lines = [_line(setting) for setting in settings]
    lines += [f"{name}: {'set, not shown' if on else 'not set'}" for name, on in secrets.items()]
    existence = "" if document.users_file_exists else ", which does not exist"
    lines.append(
        f"your own file: none ({USERS_FILE} is empty)"
        if path is None
        else f"your own file: {path}{existence}"
    )
    return print_plain(arguments, document, lines)


def _committed(arguments: argparse.Namespace) -> SettingsFile | None:
    """Return the settings in the current commit of a repository; uncommitted changes don't count."""
    if arguments.repository is None:
        return None
    return committed_settings(repository_of(arguments))


def _shown(setting: Setting) -> Setting:
    if setting.key not in _ADDRESSES or not isinstance(setting.value, str):
        return setting
    return setting.model_copy(update={"value": without_password(setting.value)})


def _line(setting: Setting) -> str:
    where = setting.where or Source.DEFAULT.value
    return f"{setting.key} = {_value(setting.value)}  ({visible(where)})"


def _value(value: JsonValue) -> str:
    if value is None or value == []:
        return "not set"
    return visible(json.dumps(value, ensure_ascii=False))
