"""Can the model be asked? Nothing is: a server that lists its models has taken the key, at no cost."""

from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from pydantic import SecretStr

from fallback_tier.errors import ConfigurationError, ToolError
from fallback_tier.observing.health.first_answer import first_answer
from fallback_tier.observing.health.report import Finding, degraded, ok
from fallback_tier.wiring import Configuration
from fallback_tier.wiring.configuration import LOCAL_PREFIX

#: For a server's first word; below what is waited for a check.
TIMEOUT_S = 4.0

#: Statuses that say what is wrong with a key.
_KEY_REFUSED = frozenset({401, 403})

#: The first status of those by which a server says that it is itself at fault.
_SERVER_ERROR = 500


class _Asked(NamedTuple):
    """A model as it is configured, and the words for it."""

    what: str
    model: str | None
    base_url: str | None
    key: SecretStr | None
    script: Path | None
    without: str
    option: str


def model_can_be_asked(configuration: Configuration) -> Finding:
    """The author's."""
    return _can_be_asked(
        _Asked(
            "model",
            configuration.model,
            configuration.base_url,
            configuration.api_key,
            configuration.script,
            "No model is configured: fixes come from recipes and examples.",
            "--base-url",
        )
    )


def judge_can_be_asked(configuration: Configuration) -> Finding:
    """The judge's."""
    return _can_be_asked(
        _Asked(
            "judge",
            configuration.judge_model,
            configuration.judge_base_url,
            configuration.judge_api_key,
            configuration.judge_script,
            "No judge is configured: grounding is not evaluated.",
            "--judge-base-url",
        )
    )


def _can_be_asked(asked: _Asked) -> Finding:
    if asked.script is not None:
        return _scripted(asked, asked.script)
    if asked.model is None:
        return ok(asked.without)
    if asked.model.startswith(LOCAL_PREFIX):
        return _local(asked, Path(asked.model.removeprefix(LOCAL_PREFIX)))
    return _served(asked, asked.model)


def _scripted(asked: _Asked, script: Path) -> Finding:
    if script.is_file():
        return ok(f"The {asked.what} is the script {script}.")
    return degraded(f"There is no script {script}.", "Check the path.")


def _local(asked: _Asked, file: Path) -> Finding:
    from fallback_plugins.messages_api.local import check_file, find_server

    try:
        check_file(file)
        program, _ = find_server()
    except (ConfigurationError, ToolError) as error:
        return degraded(error.problem, error.next_step)
    return ok(f"The {asked.what} is {file}, served by {program} when it is asked.")


def _served(asked: _Asked, model: str) -> Finding:
    from fallback_plugins.messages_api.model import PROVIDER_URL

    url = asked.base_url or PROVIDER_URL
    given = asked.base_url or PROVIDER_URL
    url = _shown(given)
    try:
        headers = {"anthropic-version": "2023-06-01"}
        if asked.key is not None:
            headers["x-api-key"] = asked.key.get_secret_value()
        status = first_answer(f"{given.rstrip('/')}/v1/models", headers, TIMEOUT_S).status
    except OSError as error:
        return degraded(
            f"{url}, which serves the {asked.what} {model}, can't be reached: {error}.",
            f"Check the server, proxies and {asked.option}. Recipes and examples go on without it.",
        )
    if status in _KEY_REFUSED:
        return degraded(
            f"{url} does not take the key of the {asked.what} {model} (status {status}).",
            "Set another key in the environment and start this anew; docs/runbook.md names the variable.",
        )
    if status >= _SERVER_ERROR:
        return degraded(
            f"{url}, which serves the {asked.what} {model}, answers with status {status}.",
            "Look at that server; calls are tried again by themselves.",
        )
    return ok(f"{url} answers; the {asked.what} is {model}.")


def _shown(url: str) -> str:
    """Scheme, host and port: an address may have a password in it."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], "", "", ""))
