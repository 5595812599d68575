"""What every test runs under: no network, no model key, no write to the user's home.

* **Sockets** (pytest-socket): this process connects to loopback and to Unix sockets only. Programs
  that a test starts are not covered: their registry, and their proxy, is a port that nobody listens
  on. For a test marked ``registry`` it is a registry on loopback that replays what real ones
  answered (``tests/registry/recording.py``); asking it for anything else is an error that names it.
* **Keys**: with a model's key in the environment the session does not start. ``make test`` unsets it.
* **Time**: no test is failed for being slow (hypothesis' deadline and its health check are off):
  machines are shared. What must be fast has a row in ``make bench``.
* **Home**: a fresh folder a session. npm and uv find no configuration in it, and no cache.
* **Certificates**: one is trusted, of nobody who is here.
* **Python**: the path has no shims (pyenv's) that look for one.
* **npm**: the machine's own, its modules compiled once a run (``tests/warm_npm``).
* **Temporary folders** are in memory where ``/dev/shm`` has room (``tests/memory``), and those of tests
  that passed are removed. A pytest that a test starts makes its own in a separate folder: in the common
  one it first deletes what killed runs left there, which took minutes.
* **Markers**: ``registry`` and ``sandbox`` tests are skipped, with the reason, where the answers are
  not recorded, their client is missing, or no sandbox can be had. In CI (``CI=true``) a missing
  sandbox is a failure: skipped gates prove nothing.
"""

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import certifi
import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from fallback_audit.checkpoints.keyring import generate
from fallback_tier.errors import SandboxError, ToolMissingError
from fallback_tier.files.locks import hold
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.sandbox.runners import BubblewrapSandbox
from fallback_tier.wiring.trail import RecordSettings, keys_dir
from tests.e2e.wheel import Installed, installed_once
from tests.engines.fixtures import temporal_here, temporal_server  # noqa: F401 (fixtures)
from tests.fixtures.runtimes import runtime  # noqa: F401 (a fixture)
from tests.memory import leave, temporary_in_memory
from tests.postgres.fixtures import postgres_server, postgres_url  # noqa: F401 (fixtures)
from tests.registry.fetch import RECORDER
from tests.registry.recording import DEAD, Recording, client_environ, serve_recorded
from tests.registry.store import Store
from tests.rewriting import rewrite_once
from tests.scheduling import Scheduling
from tests.schemas.checking import LEDGER, check_called, unchecked
from tests.warm_npm import warm_npm

ROOT = Path(__file__).parents[1]

LOOPBACK = "127.0.0.0/8,::1,localhost"

KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")

#: Further settings of a developer's own that would change what a test sees.
_SETTINGS = (
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_CUSTOM_HEADERS",
    "FALLBACK_TIER_API_KEY",
    "NODE_EXTRA_CA_CERTS",  # each node would read all of them before its first line, in 30 ms
    "NPM_CONFIG_USERCONFIG",
    "PYTHONDONTWRITEBYTECODE",  # every worker would rewrite every assertion, every command compile us
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
)

#: Where pytest makes its temporary folders, by its own name for it.
TEMPORARY = "PYTEST_DEBUG_TEMPROOT"

#: The clients that a ``registry`` test needs, unless its mark names some.
_CLIENTS = ("npm", "uv")

#: Nobody chose some of the tests.
_WHOLE = pytest.Config.ArgsSource.TESTPATHS

#: The marks of a run of all tests, with campaigns or without.
_MOST_OR_ALL = {"not campaign", "campaign or not campaign"}

_home = pytest.StashKey[Path]()
_memory = pytest.StashKey[Path]()
_npm = pytest.StashKey[Path]()
_open = pytest.StashKey[ExitStack]()
_outputs = pytest.StashKey[Path]()
_recording = pytest.StashKey[Recording]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--refresh-readme",
        action="store_true",
        help="rewrite docs/cli.md from the real --help instead of comparing it",
    )
    parser.addoption(
        "--refresh-contract",
        action="store_true",
        help="rewrite docs/trace-contract.md from the table of rules instead of comparing it",
    )
    parser.addoption(
        "--keep-schema",
        action="store_true",
        help="write the trails that the current audit schema version writes to tests/fixtures/trails",
    )
    parser.addoption(
        "--refresh-settings",
        action="store_true",
        help="rewrite docs/service-configuration.md from the settings instead of comparing it",
    )


@pytest.hookimpl(tryfirst=True)  # before pytest-socket reads its options
def pytest_configure(config: pytest.Config) -> None:
    config.option.allow_hosts = LOOPBACK
    config.option.allow_unix_socket = True
    settings.register_profile(
        "shared-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("shared-machine")
    config.stash[_open] = ExitStack()
    check_called()
    if hasattr(config, "workerinput"):  # xdist: the environment is inherited
        return
    present = [key for key in KEYS if key in os.environ]
    if present:
        raise pytest.UsageError(
            f"{' and '.join(present)} is set. No test may depend on a key or send it anywhere: run "
            "`make test`, which unsets it."
        )
    if not config.getoption("basetemp") and (folder := temporary_in_memory()) is not None:
        config.stash[_memory] = folder
    config.stash[_home] = _move_home()
    config.stash[_npm] = Path(tempfile.mkdtemp(prefix="fallback-tier-npm-"))
    config.stash[_outputs] = Path(tempfile.mkdtemp(prefix="fallback-tier-outputs-"))
    os.environ[LEDGER] = str(config.stash[_outputs])
    os.environ["PATH"] = warm_npm(config.stash[_npm], os.environ["PATH"])
    if config.getoption("numprocesses", None) and config.args_source is _WHOLE:
        for folder in ("integration", "unit"):
            rewrite_once(config, ROOT / "tests" / folder)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """When all tests have run: each schema of a ``--json`` was compared with a real output. That one was
    not is a failure in CI; elsewhere tests may be skipped."""
    config = session.config
    some = ("keyword", "deselect", "lf", "maxfail", "collectonly", "stepwise")
    chosen = any(config.getoption(name, None) for name in some)
    chosen = chosen or config.getoption("markexpr") not in _MOST_OR_ALL
    if hasattr(config, "workerinput") or config.args_source is not _WHOLE or chosen:
        return
    if missing := unchecked(config.stash[_outputs]):
        config.get_terminal_writer().line(f"No test has a --json output of {', '.join(missing)}.")
        if os.environ.get("CI") == "true":
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    if (opened := config.stash.get(_open, None)) is not None:
        opened.close()
    for key in (_home, _npm, _outputs):
        if (folder := config.stash.get(key, None)) is not None:
            shutil.rmtree(folder, ignore_errors=True)
    if (memory := config.stash.get(_memory, None)) is not None:
        leave(memory)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: looking for garbage among it was a third of collecting."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    return Scheduling(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A group's tests stay on one worker (``xdist_group``): its name must be a part of their ids.

    pytest-xdist 3.8 writes the longer id to an attribute that pytest 9.2 does not read: the marks said
    nothing, and each worker made what a group shares.
    """
    for item in items:
        longer = vars(item).get("_nodeid", item.nodeid)
        if longer != item.nodeid:
            item._id = type(item.id).parse(longer)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("sandbox") and (problem := _sandbox_problem()):
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must have a sandbox. {problem}", pytrace=False)
        pytest.skip(problem)
    marker = item.get_closest_marker("registry")
    if marker and (problem := _registry_problem(*(marker.args or _CLIENTS))):
        pytest.skip(problem)
    _turn_clients(_replay(item.config) if marker else client_environ(DEAD, Path.home()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    yield
    recording = item.config.stash.get(_recording, None)
    if recording is not None and (asked := recording.take_missing()):
        pytest.fail(
            f"Asked of a registry, and not recorded: {', '.join(asked)}. `make record-registry` "
            "records what the tests ask now.",
            pytrace=False,
        )


@pytest.fixture(scope="session", autouse=True)
def _started_pytests_apart(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ[TEMPORARY] = str(tmp_path_factory.mktemp("started"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the checkout."""
    place = ROOT.parent / "shared" / "data"
    if not place.is_dir():
        pytest.skip("../shared/data is not here")
    return place


@pytest.fixture(scope="session")
def installed(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Installed:
    """Our wheel in an environment of its own: built and installed once a run, whichever worker asks first.

    Its first command compiles what it imports, for all that follow.
    """
    place = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        place = place.parent  # the run's: each worker's is in it
    with hold(place / "wheel.lock"):
        return installed_once(place / "wheel")


def _move_home() -> Path:
    home = Path(tempfile.mkdtemp(prefix="fallback-tier-home-"))
    for name in _SETTINGS:
        os.environ.pop(name, None)
    # numpy comes along with SQLite's utilities, and a pool of threads that spin in each process and fork.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ["HOME"] = str(home)
    os.environ["SSL_CERT_FILE"] = str(_one_certificate(home / "certificates.pem"))
    os.environ["PATH"] = _without_shims(os.environ["PATH"])
    (home / "private.txt").write_text("what a sandboxed command must not see\n")
    # As after the first fix, which says that it made this key: else whichever test comes first hears it.
    generate(keys_dir(RecordSettings()))
    return home


def _one_certificate(place: Path) -> Path:
    """Whom a client trusts: one instead of a hundred and forty, which each client read anew, in 20 ms. No
    server here has a certificate of theirs; who tests TLS brings one."""
    first, end, _ = (
        Path(certifi.where()).read_text("utf-8").partition("-----END CERTIFICATE-----\n")
    )
    place.write_text(first + end, "utf-8")
    return place


def _without_shims(path: str) -> str:
    """Where ``python3`` is a script that looks for one (pyenv's), ours stands in the folder's place.

    Every call of uv asks the first Python of the path what it is: through a shim that is twenty processes,
    six times what uv itself takes.
    """
    own = str(Path(sys.base_exec_prefix) / "bin")
    folders = (
        own if _is_script(Path(folder) / "python3") else folder for folder in path.split(":")
    )
    return ":".join(dict.fromkeys(folders))


def _is_script(program: Path) -> bool:
    try:
        with program.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def _replay(config: pytest.Config) -> Mapping[str, str]:
    """The clients' environment: the recorder's where one records, else a replay of our own."""
    if url := os.environ.get(RECORDER):
        return client_environ(url, Path.home() / f"clients-{os.getpid()}")
    if _recording not in config.stash:
        config.stash[_recording] = config.stash[_open].enter_context(serve_recorded(Store()))
    return config.stash[_recording].environ


def _turn_clients(environ: Mapping[str, str]) -> None:
    """Fixtures of any scope see it: it is set before the first of them is made."""
    for name, value in environ.items():
        if value:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)


@cache
def _sandbox_problem() -> str | None:
    try:
        BubblewrapSandbox().probe()
    except SandboxError as error:
        return error.problem
    return None


@cache
def _registry_problem(*tools: str) -> str | None:
    """Why a test that starts these clients can't run here; None where it can."""
    for tool in tools:
        try:
            SubprocessClients().run(tool, ["--version"], cwd=Path.home(), timeout_s=60)
        except ToolMissingError as error:
            return error.problem
    return None if RECORDER in os.environ else Store().problem()
