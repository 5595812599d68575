"""Packages that a package's archive bundles, read from the tarball that npm fetches: nothing in it is run.

npm itself checks the archive against the registry's digest, and sends credentials only where they belong.
"""

import json
import re
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fallback_audit.disk_errors import blamed
from fallback_audit.vocabulary import BlockerKind
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.hosts import run_client
from fallback_plugins.npm.clients.scratch import scratch_project
from fallback_plugins.npm.clients.words import blockers_in, own_words
from fallback_plugins.npm.manifests.manifest import MANIFEST
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.ladder import refused_for
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner
from fallback_tier.outcome import Blocker

#: Seconds for one fetch.
_FETCH_TIMEOUT_S = 120.0

#: Most bytes of an archive as it is fetched, and unpacked (the data is skipped, not stored). npm's own,
#: which bundles some 200 packages, has 3 MB and 12 MB.
MAX_ARCHIVE_BYTES = 64 * 1024 * 1024
MAX_UNPACKED_BYTES = 512 * 1024 * 1024

#: Most bytes of one package.json in it.
_MAX_MANIFEST_BYTES = 1024 * 1024

#: The manifest of a bundled package: ``package/node_modules/a/node_modules/@s/b/package.json``.
_BUNDLED = re.compile(r"[^/]+(?:/node_modules/(?:@[^/]+/)?[^/@]+)+/package\.json")

#: The same, or that of the archive's own package.
_PACKED = re.compile(rf"(?:\./)?(?:{_BUNDLED.pattern}|[^/]+/package\.json)")


@dataclass(frozen=True)
class Bundled:
    """A package in the archive of another one."""

    name: str
    version: str


def bundled_in(package: str, version: str, clients: ClientRunner) -> tuple[Bundled, ...]:
    """Return what a release bundles; npm caches the release. Raises RecipeError, ToolError."""
    # npm is given an exact version of the registry, and nothing else that it could fetch.
    what = f"What {package} {version} bundles could not be read"
    arguments = ["pack", f"{package}@{version}", "--ignore-scripts", "--loglevel=error"]
    with scratch_project({MANIFEST: "{}"}) as folder:
        result = run_client(clients, "npm", arguments, cwd=folder, timeout_s=_FETCH_TIMEOUT_S)
        archives = sorted(folder.glob("*.tgz"))
        if not result.ok or not archives:
            raise unreadable(what, own_words(result.output), package)
        try:
            return tuple(_read(archives[0]))
        except (tarfile.TarError, OSError, EOFError, ValueError, RecursionError) as error:
            archive = f"npm's archive of {package} {version}"
            raise blamed(error, archive, unreadable(what, str(error), package)) from error


def packed_in(archive: Path, what: str) -> tuple[Bundled, ...]:
    """Return the package of an archive of the repository, and what it bundles. ``what`` names the archive.
    Raises RecipeError if it can't be read, or names no package."""
    try:
        packages = tuple(_read(archive, _PACKED))
    except (tarfile.TarError, OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise blamed(error, what, _not_an_archive(what, str(error))) from error
    if not packages:
        raise _not_an_archive(what, "it has no package.json with a name and a version")
    return packages


def _read(archive: Path, manifests: re.Pattern[str] = _BUNDLED) -> Iterator[Bundled]:
    """Yield the packages of an archive. Raises ValueError, too, if it exceeds a limit."""
    if archive.stat().st_size > MAX_ARCHIVE_BYTES:
        raise ValueError(f"it has more than {MAX_ARCHIVE_BYTES} bytes")
    unpacked = 0
    with tarfile.open(archive, mode="r|*") as entries:
        for entry in entries:
            unpacked += entry.size
            if unpacked > MAX_UNPACKED_BYTES:
                raise ValueError(f"it unpacks to more than {MAX_UNPACKED_BYTES} bytes")
            if not entry.isfile() or manifests.fullmatch(entry.name) is None:
                continue
            file = entries.extractfile(entry)
            if file is None or entry.size > _MAX_MANIFEST_BYTES:
                raise ValueError(f"{entry.name} in it is too large")
            manifest = json.loads(file.read().decode("utf-8", "replace"))
            identity = [manifest.get(key) for key in ("name", "version")] if manifest else []
            if len(identity) == 2 and all(isinstance(text, str) for text in identity):
                yield Bundled(*identity)


def _not_an_archive(what: str, why: str) -> RecipeError:
    return unsupported(
        f"{what!r} can't be read as a package's archive: {why.rstrip('.')}.",
        "Replace it with a release of a registry, or make it again with `npm pack`.",
    )


def unreadable(head: str, words: str, package: str) -> RecipeError:
    """Return the refusal of a query about one package that npm could not answer. ``words``: its errors."""
    files = Files(".", {MANIFEST: json.dumps({"dependencies": {package: "*"}})})
    blockers = blockers_in(words, files, package)
    quote = Blocker(kind=BlockerKind.CLIENT, package="npm:", constraint=words, file=MANIFEST)
    return refused_for(*(blockers or (quote,)), head=head)
