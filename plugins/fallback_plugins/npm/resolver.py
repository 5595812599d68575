"""Lock refreshes by the real npm, in a scratch folder that holds two manifest files and no more."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.npm.lockfile import all_versions, lockfile_version
from fallback_plugins.npm.survey import ECOSYSTEM, MANIFEST
from fallback_tier.advisory import compare_versions
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.errors import RecipeError
from fallback_tier.ports import ClientRunner

#: Seconds for one npm run. A version 1 lock makes npm ask the registry about every package in it.
NPM_TIMEOUT_S = 300.0

#: How much of npm's own words a refusal repeats.
_MAX_WORDS = 600


@dataclass(frozen=True)
class Npm:
    """Runs npm over copies of a package.json and its lock; the repository is never the place.

    No script of anyone's runs, no git repository is cloned (npm prepares a clone by another install),
    and the repository's .npmrc is not there: it can name programs.
    ``options``: what else the project needs said on the command line.
    """

    clients: ClientRunner
    lock_name: str
    options: Sequence[str] = ()

    def install(self, manifest_text: str, lock_text: str) -> str:
        """The lock made to fit this package.json, with as little change as npm makes."""
        return self._lock_after(["install"], manifest_text, lock_text)

    def update(self, package: str, manifest_text: str, lock_text: str) -> str:
        """The lock with every copy of the package raised as far as its parents' ranges allow."""
        return self._lock_after(["update", package], manifest_text, lock_text)

    def _lock_after(self, words: Sequence[str], manifest_text: str, lock_text: str) -> str:
        with TemporaryDirectory(prefix="fallback-tier-npm-") as folder:
            scratch = Path(folder)
            # Bytes: text mode would change line ends.
            (scratch / MANIFEST).write_bytes(manifest_text.encode())
            (scratch / self.lock_name).write_bytes(lock_text.encode())
            result = self.clients.run(
                "npm",
                [*words, *_as_found(lock_text), *self.options],
                cwd=scratch,
                timeout_s=NPM_TIMEOUT_S,
            )
            if not result.ok:
                ending = f"no answer in {NPM_TIMEOUT_S:.0f} s" if result.timed_out else "it said"
                raise resolver_failed(
                    f"npm could not resolve the bump; {ending}: {own_words(result.output)}."
                )
            return (scratch / self.lock_name).read_bytes().decode()


def downgraded(before: str, after: str) -> str | None:
    """A place where the new lock holds a package in a lower version, as a clause; or None.

    A version that the old lock held elsewhere may move up the tree: that is hoisting.
    """
    new = all_versions(after)
    for name, places in all_versions(before).items():
        for path, version in places.items():
            now = new.get(name, {}).get(path)
            if now is None or now in places.values():
                continue
            # A git URL has no order; npm also spells the same one in two ways.
            comparable = is_orderable(ECOSYSTEM, now) and is_orderable(ECOSYSTEM, version)
            if comparable and compare_versions(ECOSYSTEM, now, version) < 0:
                return f"{path} would go down from {version} to {now}"
    return None


def resolver_failed(problem: str) -> RecipeError:
    """The typed refusal for what npm could not, or should not, resolve."""
    return RecipeError(
        RefusalReason.RESOLVER_FAILED,
        problem,
        next_step="Resolve it by hand with npm, or check that the registry is reachable.",
    )


def own_words(output: str) -> str:
    """A client's message on one line, bounded: its errors, without the pointers to log files."""
    lines = [line.removeprefix("npm error").strip() for line in output.splitlines()]
    said = "; ".join(line for line in lines if line and "complete log" not in line)
    return said[:_MAX_WORDS].rstrip(" ;.") or "nothing"


def _as_found(lock_text: str) -> list[str]:
    """Options that keep the lock's own shape, whatever the user's npmrc says."""
    omitted = "false" if '"resolved"' in lock_text else "true"
    return [
        "--package-lock-only",
        "--package-lock=true",
        "--ignore-scripts",
        "--allow-git=none",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
        f"--omit-lockfile-registry-resolved={omitted}",
        f"--lockfile-version={lockfile_version(lock_text)}",
    ]
