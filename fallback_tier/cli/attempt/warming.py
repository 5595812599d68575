"""What every attempt by recipe needs, made ready once: imports, validators, patterns.

A rehearsal does it: one attempt on a repository of its own that is thrown away, with a record of its own.
A list of modules would miss what is built when it is first used, and grow old.
"""

import gc
import os
import tempfile
from contextlib import redirect_stderr, suppress
from importlib import import_module
from io import StringIO
from pathlib import Path

from fallback_tier.cli.attempt.request import AttemptRequest, attempted
from fallback_tier.errors import FallbackError
from fallback_tier.installed import clients_and_plugins
from fallback_tier.repo import Settings
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.wiring import Configuration, RecordSettings

#: What the rehearsal does not reach: recipes of the other ecosystem, the user's own folders, and how a
#: child learns of our end.
_BESIDE = (
    "ctypes",
    "fallback_plugins.npm.identity",
    "fallback_plugins.npm.recipe",
    "fallback_plugins.npm.surveying.reading",
    "platformdirs.unix",
)

_PACKAGE = "rehearsal"
_ADVISORY = {
    "id": "REHEARSAL-1",
    "modified": "2026-01-01T00:00:00Z",
    "summary": "a flaw",
    "affected": [
        {
            "package": {"ecosystem": "PyPI", "name": _PACKAGE},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.0.0"}]}],
        }
    ],
}

#: Four calls of git on a repository of one file.
_GIT_S = 30.0


def warm() -> None:
    """Make this process ready. It has one thread afterwards, as before: each attempt is a fork of it.

    What fails here (no git, a plugin that raises) fails again, and is told, in the attempt that needs it.
    """
    # numpy comes along where it is installed, and its threads spin on a busy machine.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in _BESIDE:
        import_module(name)
    _, plugins = clients_and_plugins()
    for name in plugins:
        with suppress(FallbackError):
            plugins[name]
    with (
        suppress(FallbackError, OSError),
        redirect_stderr(StringIO()),
    ):  # a key of its own, and such
        rehearse()
    gc.collect()
    gc.freeze()  # a child that looks for garbage does not copy what this process has


def rehearse() -> None:
    """One attempt by recipe from files alone. Raises FallbackError, OSError."""
    with tempfile.TemporaryDirectory(prefix="fallback-tier-rehearsal-") as folder:
        place = Path(folder)
        root = place / "repository"
        root.mkdir()
        (root / "requirements.txt").write_text(f"{_PACKAGE}==1.0.0\n")
        clients = SubprocessClients()
        person = ("-c", "user.name=rehearsal", "-c", "user.email=rehearsal@example.invalid")
        for words in (
            ("init", "--quiet"),
            ("add", "requirements.txt"),
            (*person, "-c", "commit.gpgSign=false", "commit", "--quiet", "--message=rehearsal"),
        ):
            clients.run("git", words, cwd=root, timeout_s=_GIT_S)
        attempted(AttemptRequest(advisory=_ADVISORY, repository=root), _configuration(place))


def _configuration(place: Path) -> Configuration:
    return Configuration(
        state_dir=place / "state",
        record=RecordSettings(keys=place / "keys"),
        settings=Settings(offline=True),
    )
