"""Lock refreshes by the real uv, in a scratch folder that holds two manifest files and no more."""

from pathlib import Path
from tempfile import TemporaryDirectory

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.bumping import unsupported
from fallback_plugins.pypi.pyproject import NO_BACKEND, harmless, parse_toml
from fallback_plugins.pypi.survey import ECOSYSTEM
from fallback_tier.advisory import sort_key
from fallback_tier.errors import RecipeError
from fallback_tier.ports import ClientRunner

#: Seconds for one uv run: seconds in practice; the registry may be slow.
UV_TIMEOUT_S = 300.0

#: How much of uv's own words a refusal repeats.
_MAX_WORDS = 600


def refresh_lock(
    clients: ClientRunner, *, manifest: str, lock: str, package: str, version: str
) -> str:
    """uv.lock with one package raised, all others kept where they can be.

    Nothing is built, so that no code of the project or of a source distribution runs out here.
    Raises RecipeError, ToolMissingError.
    """
    with TemporaryDirectory(prefix="fallback-tier-uv-") as folder:
        scratch = Path(folder)
        # Bytes: text mode would change line ends.
        (scratch / "pyproject.toml").write_bytes(harmless("pyproject.toml", manifest).encode())
        (scratch / "uv.lock").write_bytes(lock.encode())
        result = clients.run(
            "uv",
            [
                "lock",
                f"--upgrade-package={package}=={version}",
                "--no-build",
                "--no-python-downloads",
                "--no-progress",
                "--color=never",
            ],
            cwd=scratch,
            timeout_s=UV_TIMEOUT_S,
        )
        if NO_BACKEND in result.output:
            raise unsupported(
                "uv would have to build the project to know its metadata (`dynamic` in"
                " pyproject.toml), which would run its code outside the sandbox."
            )
        if not result.ok:
            ending = f"no answer in {UV_TIMEOUT_S:.0f} s" if result.timed_out else "it said"
            raise resolver_failed(
                f"uv could not resolve the bump; {ending}: {_own_words(result.output, folder)}."
            )
        return (scratch / "uv.lock").read_bytes().decode()


def downgraded(before: str, after: str) -> str | None:
    """A package that the new lock holds in lower versions only, as a clause; or None."""
    old, new = _highest_versions(before), _highest_versions(after)
    for name in old.keys() & new.keys():
        if sort_key(ECOSYSTEM, new[name]) < sort_key(ECOSYSTEM, old[name]):
            return f"{name} would go down from {old[name]} to {new[name]}"
    return None


def resolver_failed(problem: str) -> RecipeError:
    """The typed refusal for what uv could not, or should not, resolve."""
    return RecipeError(
        RefusalReason.RESOLVER_FAILED,
        problem,
        next_step="Resolve it by hand with uv, or check that the registry is reachable.",
    )


def _highest_versions(lock: str) -> dict[str, str]:
    highest: dict[str, str] = {}
    for table in parse_toml("uv.lock", lock).get("package", ()):
        name, version = table["name"], table.get("version", "0")
        highest[name] = max(
            highest.get(name, version), version, key=lambda it: sort_key(ECOSYSTEM, it)
        )
    return highest


def _own_words(output: str, scratch: str) -> str:
    """uv's message on one line, bounded, without its progress and our scratch folder's name."""
    _, found, errors = output.partition("error:")
    said = " ".join((errors if found else output).replace(scratch, ".").split())
    return said[:_MAX_WORDS].rstrip(" ;.") or "nothing"
