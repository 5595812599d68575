"""The ways to install an npm project, the most exact first (ADR-0039).

1. its own client follows its lock; 2. the client resolves anew what the lock does not answer; 3. npm alone,
from the manifests; 4. what it runs with and what its tests are run by. npm tries each with its older rule
for peers, too, where the newer one stands in the way.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fallback_plugins.npm.clients.npm_run import WITHOUT_PEERS, peer_options
from fallback_plugins.npm.clients.pnpm import PNPM
from fallback_plugins.npm.clients.pnpm_settings import carried_manifest, carried_text
from fallback_plugins.npm.clients.scratch import check_lock_names
from fallback_plugins.npm.clients.yarn import YARN
from fallback_plugins.npm.installing.commands import BERRY, Commands
from fallback_plugins.npm.installing.inputs import LERNA, Inputs
from fallback_plugins.npm.locks.addresses import registry_prefixes
from fallback_plugins.npm.locks.pnpm_lock import parse_pnpm_lock, without_importers
from fallback_plugins.npm.locks.yarn_berry import berry_compression, berry_format
from fallback_plugins.npm.manifests.layout import LOCKS, MANIFEST, PNPM_LOCK, YARN_LOCK, in_folder
from fallback_plugins.npm.manifests.pnpm_workspace import settings
from fallback_plugins.shared.installed import Level, left_out_reason
from fallback_tier.errors import RecipeError
from fallback_tier.execution import CommandResult


@dataclass(frozen=True)
class InstallStep:
    """One way. ``run`` gets the folder of the copies; ``left_out``: what it does not even try.

    ``where``: it is tried only where the reason of the one before says this. ``lock``: path of the lock
    that the client writes while it resolves; empty: it takes what the project's lock says, and no more.
    """

    name: str
    level: Level
    texts: Mapping[str, str]
    run: Callable[[Path], CommandResult]
    left_out: tuple[tuple[str, str], ...] = ()
    where: str = ""
    lock: str = ""

    @property
    def is_frozen(self) -> bool:
        """Whether the project's lock decides everything."""
        return not self.lock


def steps(inputs: Inputs, commands: Commands) -> Iterator[InstallStep | tuple[str, str]]:
    """Each way, or (what, why) where one can't even be tried."""
    name = inputs.lock_name
    if inputs.bootstrapped and (not name or name in LOCKS):
        yield from _bootstrapped(inputs, commands)
    if name in LOCKS:
        yield from _by_npm(inputs, commands)
        return
    if name == YARN_LOCK:
        yield from _by_yarn(inputs, commands)
    elif name == PNPM_LOCK:
        yield from _by_pnpm(inputs, commands)
    elif name:
        yield name, "no client of ours follows it"
    level = Level.IN_PART if name else Level.EVERYTHING
    yield from _from_manifests(inputs.for_npm(), commands, level)


def _by_npm(inputs: Inputs, commands: Commands) -> Iterator[InstallStep]:
    npm = _Npm(inputs, commands, locked=True)
    yield from npm.steps("npm ci", Level.EVERYTHING, "ci")
    yield from npm.steps(f"npm install, {inputs.lock_name} beside it", Level.IN_PART, "install")
    yield from _for_tests(inputs, commands, locked=True)
    # The lock can name what is nowhere to be had any more.
    yield from _from_manifests(inputs, commands, Level.IN_PART)


def _bootstrapped(inputs: Inputs, commands: Commands) -> Iterator[InstallStep]:
    """lerna installs its packages beside the root, by no lock; npm does it where they are members."""
    npm = _Npm(
        replace(inputs, own=(*inputs.own, *inputs.bootstrapped)).for_npm(), commands, locked=True
    )
    yield from npm.steps(f"npm install with the packages of {LERNA}", Level.EVERYTHING, "install")


def _from_manifests(inputs: Inputs, commands: Commands, level: Level) -> Iterator[InstallStep]:
    name = "npm install" if level is Level.EVERYTHING else "npm install without a lock"
    yield from _Npm(inputs, commands, locked=False).steps(name, level, "install")
    yield from _for_tests(inputs, commands, locked=False)


def _for_tests(inputs: Inputs, commands: Commands, *, locked: bool) -> Iterator[InstallStep]:
    """What else it is developed with is left out; where that is nothing, there is no such step."""
    fewer, left_out = inputs.for_tests()
    if not left_out:
        return
    reported = tuple((what, left_out_reason(names)) for what, names in left_out.items())
    name = "npm install of what it runs with and its test runner"
    name += f", {inputs.lock_name} beside it" if locked else ""
    step = _Npm(fewer, commands, locked).step(name, Level.IN_PART, ["install", WITHOUT_PEERS])
    yield replace(step, left_out=reported)


@dataclass(frozen=True)
class _Npm:
    """npm over a project's texts; ``locked``: its lock beside them."""

    inputs: Inputs
    commands: Commands
    locked: bool

    def step(self, name: str, level: Level, words: Sequence[str]) -> InstallStep:
        files = self.inputs.files
        texts = self.inputs.texts(locked=self.locked)
        run = partial(self.commands.npm, self.inputs, words=[*words, "--package-lock"])
        if words[0] == "ci":
            return InstallStep(name, level, texts, run)
        lock = files.lock if files.lock in texts else in_folder(files.folder, LOCKS[-1])
        return InstallStep(name, level, texts, run, lock=str(lock))

    def steps(self, name: str, level: Level, *words: str) -> Iterator[InstallStep]:
        """And by the older rule for peers, where the project does not ask for that itself."""
        yield self.step(name, level, words)
        if not peer_options(self.inputs.files):
            again = self.step(f"{name} {WITHOUT_PEERS}", level, [*words, WITHOUT_PEERS])
            # A lock that was made by the older rule looks incomplete by the newer one.
            yield again if words[0] == "ci" else replace(again, where="ERESOLVE")


def _by_yarn(inputs: Inputs, commands: Commands) -> Iterator[InstallStep | tuple[str, str]]:
    written = berry_format(inputs.files.lock_text)
    texts = inputs.texts(locked=True)
    if written is None:
        frozen = "--frozen-lockfile"

        def resolve(folder: Path) -> CommandResult:
            _at_our_registry(folder / YARN_LOCK, commands.registry(folder))
            return commands.yarn(folder, (), only_resolves=True)

        def install(folder: Path) -> CommandResult:
            _at_our_registry(folder / YARN_LOCK, commands.registry(folder))
            # What was resolved is marked as installed, so yarn has to look.
            return commands.yarn(folder, [frozen, "--check-files"])

        whole = partial(_resolved_first, YARN_LOCK, resolve, install)
        yield InstallStep(f"{YARN.label} {frozen}", Level.EVERYTHING, texts, install)
        name = f"{YARN.label} without {frozen}"
        yield InstallStep(name, Level.IN_PART, texts, whole, lock=str(inputs.files.lock))
        return
    compression = berry_compression(inputs.files.lock_text)
    client = next(client for lowest, client in BERRY.items() if written >= lowest)

    def berry(*, frozen: bool) -> Callable[[Path], CommandResult]:
        return lambda folder: commands.berry(client, folder, compression, frozen=frozen)

    yield InstallStep(f"{client.label} --immutable", Level.EVERYTHING, texts, berry(frozen=True))
    name = f"{client.label} without --immutable"
    yield InstallStep(name, Level.IN_PART, texts, berry(frozen=False), lock=str(inputs.files.lock))


def _by_pnpm(inputs: Inputs, commands: Commands) -> Iterator[InstallStep | tuple[str, str]]:
    try:
        client = PNPM[parse_pnpm_lock(inputs.files.lock_text).format[0]]
        texts = _pnpm_texts(inputs)
    except RecipeError as error:
        yield inputs.lock_name, error.problem
        return
    frozen = "--frozen-lockfile"

    def run(*words: str) -> Callable[[Path], CommandResult]:
        return lambda folder: commands.pnpm(client, folder, words)

    yield InstallStep(f"{client.label} {frozen}", Level.EVERYTHING, texts, run(frozen))
    if private := inputs.private_members:
        name = f"{client.label} {frozen} without private members"
        left_out = (("private members", left_out_reason(private)),)
        published = _published(inputs, texts)
        yield InstallStep(name, Level.IN_PART, published, run(frozen), left_out)
    resolve = run("--no-frozen-lockfile", "--lockfile-only")
    whole = partial(_resolved_first, PNPM_LOCK, resolve, run(frozen))
    name = f"{client.label} without {frozen}"
    yield InstallStep(name, Level.IN_PART, texts, whole, lock=str(inputs.files.lock))


def _resolved_first(
    lock: str,
    resolve: Callable[[Path], CommandResult],
    install: Callable[[Path], CommandResult],
    folder: Path,
) -> CommandResult:
    """Resolve, and install what was resolved: what packages themselves name is looked at between."""
    made = resolve(folder)
    if not made.ok:
        return made
    try:
        check_lock_names(lock, (folder / lock).read_text("utf-8"))
    except (OSError, RecipeError) as error:
        why = error.problem if isinstance(error, RecipeError) else f"{lock} can't be read"
        return made.model_copy(update={"exit_code": 1, "output": f"error: {why}\n"})
    return install(folder)


def _pnpm_texts(inputs: Inputs) -> dict[str, str]:
    content = settings(inputs.files)
    texts = inputs.texts(locked=True)
    for path, text in carried_text(content).items():
        texts[in_folder(inputs.files.folder, path)] = text
    path = in_folder(inputs.files.folder, MANIFEST)
    texts[path] = carried_manifest(content, texts[path])
    return texts


def _published(inputs: Inputs, texts: Mapping[str, str]) -> dict[str, str]:
    """The workspace as if it had no private members: its settings and its lock name none."""
    private = inputs.private_members
    kept = [member for member in inputs.members if member not in private]
    fewer = dict(texts)
    for path, text in carried_text({**settings(inputs.files), "packages": kept}).items():
        fewer[in_folder(inputs.files.folder, path)] = text
    return {**fewer, str(inputs.files.lock): without_importers(inputs.files.lock_text, private)}


def _at_our_registry(lock: Path, registry: str) -> None:
    """yarn fetches from where a lock says. What comes from a public registry is fetched from the one that
    this machine reaches, as npm does it; the lock's digests are still what counts."""
    text = lock.read_text(encoding="utf-8")
    for prefix in registry_prefixes(text):
        text = text.replace(f'resolved "{prefix}', f'resolved "{registry.rstrip("/")}/')
    lock.write_text(text, encoding="utf-8")
