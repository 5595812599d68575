"""What a package's archive bundles, read from the tarball that npm fetches: nothing in it is run.

npm itself checks the archive against the registry's digest, and sends its credentials where they belong.
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

#: Of an archive as it is fetched, and of what it unpacks to (which is passed over, not kept). npm's own,
#: which bundles some 200 packages, has 3 MB and 12 MB.
MAX_ARCHIVE_BYTES = 64 * 1024 * 1024
MAX_UNPACKED_BYTES = 512 * 1024 * 1024

#: Of one package.json in it.
_MAX_MANIFEST_BYTES = 1024 * 1024

#: The manifest of a bundled package: ``package/node_modules/a/node_modules/@s/b/package.json``.
_BUNDLED = re.compile(r"[^/]+(?:/node_modules/(?:@[^/]+/)?[^/@]+)+/package\.json")

#: The same, or that of the archive's own package.
_PACKED = re.compile(rf"(?:\./)?(?:{_BUNDLED.pattern}|[^/]+/package\.json)")


@dataclass(frozen=True)
class Bundled:
    """A package that lies in another one's archive."""

    name: str
    version: str


def bundled_in(package: str, version: str, clients: ClientRunner) -> tuple[Bundled, ...]:
    """What one release bundles. It is in npm's cache then. Raises RecipeError, ToolError."""
    # Beside an exact version of the registry npm is told nothing that it could fetch.
    what = f"What {package} {version} bundles could not be read"
    words = ["pack", f"{package}@{version}", "--ignore-scripts", "--loglevel=error"]
    with scratch_project({MANIFEST: "{}"}) as folder:
        result = run_client(clients, "npm", words, cwd=folder, timeout_s=_FETCH_TIMEOUT_S)
        found = sorted(folder.glob("*.tgz"))
        if not result.ok or not found:
            raise unreadable(what, own_words(result.output), package)
        try:
            return tuple(_read(found[0]))
        except (tarfile.TarError, OSError, EOFError, ValueError, RecursionError) as error:
            archive = f"npm's archive of {package} {version}"
            raise blamed(error, archive, unreadable(what, str(error), package)) from error


def packed_in(archive: Path, what: str) -> tuple[Bundled, ...]:
    """Return the package of an archive of the repository, and what it bundles. ``what`` names the archive.
    Raises RecipeError: it can't be read, or names no package."""
    try:
        found = tuple(_read(archive, _PACKED))
    except (tarfile.TarError, OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise blamed(error, what, _not_an_archive(what, str(error))) from error
    if not found:
        raise _not_an_archive(what, "it has no package.json with a name and a version")
    return found


def _read(archive: Path, manifests: re.Pattern[str] = _BUNDLED) -> Iterator[Bundled]:
    """Raises ValueError, too: it is larger than anybody needs."""
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
            reported = [manifest.get(key) for key in ("name", "version")] if manifest else []
            if len(reported) == 2 and all(isinstance(one, str) for one in reported):
                yield Bundled(*reported)


def _not_an_archive(what: str, why: str) -> RecipeError:
    return unsupported(
        f"{what!r} can't be read as a package's archive: {why.rstrip('.')}.",
        "Replace it with a release of a registry, or make it again with `npm pack`.",
    )


def unreadable(head: str, words: str, package: str) -> RecipeError:
    """Return the refusal of a question about one package that npm could not answer. ``words``: npm's."""
    files = Files(".", {MANIFEST: json.dumps({"dependencies": {package: "*"}})})
    found = blockers_in(words, files, package)
    quote = Blocker(kind=BlockerKind.CLIENT, package="npm:", constraint=words, file=MANIFEST)
    return refused_for(*(found or (quote,)), head=head)
