"""uv, run for an environment: nothing is downloaded but packages, and nothing of an environment starts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from fallback_plugins.pypi.manifests import hosts
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext

#: uv asks a Python what it is by starting it, and with it every .pth file in its environment, out here. It
#: does so once, while the environment is empty, and keeps the answer: a user's ``no-cache`` would have it
#: ask again behind each package. uv takes no --no-compile-bytecode beside UV_COMPILE_BYTECODE: without that
#: variable there is nothing to say no to.
_ALWAYS = {
    "UV_NO_CACHE": "false",
    "UV_PYTHON_DOWNLOADS": "never",
    "UV_NO_PROGRESS": "1",
    "NO_COLOR": "1",
    "UV_COMPILE_BYTECODE": "",
}

#: A user's uv.toml may have it upgrade or install again (``upgrade``, ``reinstall``, their ``-package``
#: keys, those of ``[pip]``): each has uv ask the Python again, too.
_ONCE = ("--no-upgrade", "--no-reinstall")

#: Commands that put packages into an environment.
_INSTALLING = (("pip", "install"), ("sync",))

#: Compiling would start the environment's Python, and every .pth file in it, out here.
NOT_COMPILED = "--no-compile-bytecode"


def run_uv(
    context: GateContext,
    arguments: Sequence[str],
    cwd: Path,
    until: str = "",
    env: Mapping[str, str] = MappingProxyType({}),
) -> CommandResult:
    """``until``: the day of the releases (``2022-05-27``); empty: any. Raises ToolMissingError."""
    if any(tuple(arguments[: len(words)]) == words for words in _INSTALLING):
        arguments = [*arguments, *_ONCE]
    of_day = {"UV_EXCLUDE_NEWER": f"{until}T23:59:59Z"} if until else {}
    return hosts.run_uv(
        context.clients,
        arguments,
        cwd=cwd,
        timeout_s=context.timeout_s,
        env={**_ALWAYS, **env, **of_day},
    )
