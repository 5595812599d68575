"""Does a lock answer what its manifests ask for? What it does not answer, nobody knows the version of."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from fallback_plugins.npm.client import Client, Files
from fallback_plugins.npm.clients.by_lock import PNPM_LOCK, YARN_LOCK
from fallback_plugins.npm.clients.npm_client import NpmClient
from fallback_plugins.npm.manifests.layout import ECOSYSTEM, MANIFEST, in_folder
from fallback_plugins.npm.manifests.manifest import Declared, entries, parse_manifest
from fallback_plugins.npm.manifests.specs import excludes, split_alias
from fallback_plugins.shared.ladder import unknown
from fallback_plugins.shared.tree import DependencyTree
from fallback_tier.advisory import Advisory, AdvisoryBundle
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import Left

#: Sections whose entries a lock always answers: an optional package may be left out of one, and a peer is
#: somebody else's to install.
ANSWERED = ("dependencies", "devDependencies")

#: Specs of folders beside the project; not every client locks them.
_LOCAL = ("workspace:", "link:", "file:", "portal:")

#: How a lock is brought up to date, by its name; all others are npm's.
_COMMANDS = {YARN_LOCK: "yarn install", PNPM_LOCK: "pnpm install --lockfile-only"}
_NPM_COMMAND = "npm install --package-lock-only"


@dataclass(frozen=True)
class Unanswered:
    """A declaration that the lock does not answer. ``held``: the version that it has instead, if any."""

    manifest: str
    key: str
    spec: str
    held: str | None

    @property
    def package(self) -> str:
        """The package that is asked for; an alias stands for another one."""
        return _package(self.key, self.spec)


def unanswered(client: Client, files: Files, tree: DependencyTree) -> Iterator[Unanswered]:
    """What the manifests ask for and the lock plainly does not have. Raises RecipeError.

    A range that can't be read, a tag, another source: what is there counts as the answer.
    """
    roots = {_manifest_of(files, root.key): root for root in tree.roots}
    members = {root.name for root in tree.roots}
    for path, text in files.manifests.items():
        own = roots[path].asks if path in roots else ()
        asks = {ask.name: ask for ask in own if not ask.peer}
        for place in _declared(path, text):
            if place.key in members or place.spec.startswith(_LOCAL):
                continue
            ask = asks.get(place.key)
            if ask is None or ask.to is None:
                yield Unanswered(path, place.key, place.spec, None)
                continue
            node = tree.nodes.get(ask.to)
            if node is None or not excludes(place.spec, node.version):
                continue
            if not client.overrides(files, node.name):
                yield Unanswered(path, place.key, place.spec, node.version)


def locked_unanswered(client: Client, files: Files) -> list[Unanswered]:
    """The same of a lock as it is; of npm's only the part that tells is read. Raises RecipeError.

    The others read their whole lock, and before any manifest: of two broken files it is the one named.
    """
    if not isinstance(client, NpmClient):
        return list(unanswered(client, files, client.tree(files)))
    places = (place for path, text in files.manifests.items() for place in _declared(path, text))
    names = frozenset(_package(place.key, place.spec) for place in places)
    return list(unanswered(client, files, client.tree(files, names)))


def left_unanswered(lock: str, found: Sequence[Unanswered], advisory: Advisory) -> tuple[Left, ...]:
    """Those of the advisory's own packages, each as something left."""
    asked = [one for one in found if one.package in advisory.packages(ECOSYSTEM)]
    members = advisory.members if isinstance(advisory, AdvisoryBundle) else (advisory,)
    error = out_of_step(lock, asked) if asked else None
    return tuple(
        Left(
            package=package,
            manifest=lock,
            advisory_ids=tuple(it.id for it in members if package in it.packages(ECOSYSTEM)),
            reason=error.reason,
            sentence=error.problem,
            next_step=error.next_step,
            unread=error.unread,
        )
        for package in dict.fromkeys(one.package for one in asked)
        if error is not None
    )


def out_of_step(lock: str, found: Sequence[Unanswered]) -> RecipeError:
    """The refusal: which file, what it does not answer, and the command that repairs it."""
    first = found[0]
    held = f"{first.key} {first.held}" if first.held else "none of it"
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    name = PurePosixPath(lock).name
    folder = str(PurePosixPath(lock).parent)
    where = "" if folder == "." else f" in {folder}"
    return unknown(
        lock,
        f"{lock} is out of step with {first.manifest}: that asks for {first.key} {first.spec}{more}, and"
        f" the lock holds {held}.",
        next_step=f"Run `{_COMMANDS.get(name, _NPM_COMMAND)}`{where} and commit the lock.",
    )


def _declared(path: str, text: str) -> Iterator[Declared]:
    manifest = parse_manifest(path, text)
    optional = manifest.get("optionalDependencies")
    for section in ANSWERED:
        for key, spec in entries(manifest.get(section)):
            if not (isinstance(optional, dict) and key in optional):
                yield Declared(section, key, spec)


def _package(key: str, spec: str) -> str:
    return split_alias(spec)[0].removeprefix("npm:").rstrip("@") or key


def _manifest_of(files: Files, key: str) -> str:
    """npm's roots are keyed by their folder below the project, the others' by the manifest's path."""
    if PurePosixPath(key).name == MANIFEST:
        return key
    return in_folder(files.folder, in_folder(key or ".", MANIFEST))
