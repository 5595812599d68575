"""What every test runs under: no network, no model key, no write to the user's home.

* **Sockets** (pytest-socket): this process connects to loopback and to Unix sockets only. Programs
  that a test starts (npm, uv, the console script) are not covered; only tests marked ``registry``
  start one that needs a network.
* **Keys**: with a model's key in the environment the session does not start. ``make test`` unsets it.
* **Home**: a fresh folder a session. npm and uv read the user's configuration (it says where their
  registry is) and keep their caches with pytest's, so that a second session is quick.
* **Markers**: ``registry`` and ``sandbox`` tests are skipped, with the reason, where none can be had.
  In CI (``CI=true``) a missing sandbox is a failure: skipped gates prove nothing.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from fallback_tier.errors import SandboxError, ToolMissingError
from fallback_tier.gates.clients import SubprocessClients
from fallback_tier.gates.sandbox import BubblewrapSandbox
from tests.e2e.wheel import Installed, build_wheel, install

ROOT = Path(__file__).parents[1]

LOOPBACK = "127.0.0.0/8,::1,localhost"

KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")

#: Further settings of a developer's own that would change what a test sees.
_SETTINGS = (
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_CUSTOM_HEADERS",
    "FALLBACK_TIER_API_KEY",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
)

#: One small question a client, that only a registry can answer.
_PROBES = {
    "npm": ["view", "ms@2.1.3", "version"],
    "uv": ["pip", "compile", "--quiet", "--no-deps", "--no-header", "--refresh", "one.in"],
}
_PROBE_TIMEOUT_S = 60.0

_home = pytest.StashKey[Path]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--refresh-readme",
        action="store_true",
        help="rewrite the README's help block from the real --help instead of comparing it",
    )


@pytest.hookimpl(tryfirst=True)  # before pytest-socket reads its options
def pytest_configure(config: pytest.Config) -> None:
    config.option.allow_hosts = LOOPBACK
    config.option.allow_unix_socket = True
    if hasattr(config, "workerinput"):  # xdist: the environment is inherited
        return
    present = [key for key in KEYS if key in os.environ]
    if present:
        raise pytest.UsageError(
            f"{' and '.join(present)} is set. No test may depend on a key or send it anywhere: run "
            "`make test`, which unsets it."
        )
    config.stash[_home] = _move_home()


def pytest_unconfigure(config: pytest.Config) -> None:
    if (home := config.stash.get(_home, None)) is not None:
        shutil.rmtree(home, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("sandbox") and (problem := _sandbox_problem()):
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must have a sandbox. {problem}", pytrace=False)
        pytest.skip(problem)
    marker = item.get_closest_marker("registry")
    for tool in (marker.args or _PROBES) if marker else ():
        if problem := registry_problem(tool):
            pytest.skip(problem)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the checkout."""
    place = ROOT.parent / "shared" / "data"
    if not place.is_dir():
        pytest.skip("../shared/data is not here")
    return place


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Our wheel in an environment of its own."""
    place = tmp_path_factory.mktemp("wheel")
    return install(build_wheel(place / "dist"), place / "environment")


def _move_home() -> Path:
    user = Path.home()
    home = Path(tempfile.mkdtemp(prefix="fallback-tier-home-"))
    caches = ROOT / ".pytest_cache" / "clients"
    for name in _SETTINGS:
        os.environ.pop(name, None)
    os.environ.setdefault("XDG_CONFIG_HOME", str(user / ".config"))
    if (user / ".npmrc").is_file():
        os.environ.setdefault("NPM_CONFIG_USERCONFIG", str(user / ".npmrc"))
    os.environ["NPM_CONFIG_CACHE"] = str(caches / "npm")
    os.environ["UV_CACHE_DIR"] = str(caches / "uv")
    os.environ["HOME"] = str(home)
    (home / "private.txt").write_text("what a sandboxed command must not see\n")
    return home


@cache
def _sandbox_problem() -> str | None:
    try:
        BubblewrapSandbox().probe()
    except SandboxError as error:
        return error.problem
    return None


@cache
def registry_problem(tool: str) -> str | None:
    """Why ``tool`` reaches no registry; None where it does. Asked once a session, all workers."""
    return _once(Path.home() / f"registry-{tool}", lambda: _probe(tool)) or None


def _probe(tool: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "one.in").write_text("iniconfig==2.0.0\n")
        try:
            done = SubprocessClients().run(
                tool, _PROBES[tool], cwd=Path(folder), timeout_s=_PROBE_TIMEOUT_S
            )
        except ToolMissingError as error:
            return error.problem
    return "" if done.ok else f"{tool} reaches no registry: {done.output.strip()[-200:]}"


def _once(answer: Path, ask: Callable[[], str]) -> str:
    """One worker asks and leaves the answer; the others wait for it."""
    with answer.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not answer.exists():
            answer.write_text(ask())
        return answer.read_text()
