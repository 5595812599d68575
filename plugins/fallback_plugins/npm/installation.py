"""One npm project of one tree: what it declares, installing it, running its commands.

Downloads happen outside the sandbox, over copies of the manifests, with every script off; what runs
in the tree (``npm ci --offline``, ``npm test``) runs inside, the cache read-only.
"""

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from fallback_plugins import gating
from fallback_plugins.gating import in_folder
from fallback_plugins.npm.layout import FOREIGN_LOCKS, LOCKS, MANIFEST
from fallback_plugins.npm.manifest import SECTIONS, parse_manifest
from fallback_tier.execution import CommandResult
from fallback_tier.ports import GateContext
from fallback_tier.repo import RepoContext

#: What `npm init` writes: no test, and a failure.
_PLACEHOLDER = "no test specified"

#: npm looks packuments up in the cache's index only after it has rewritten the entry, so that an index
#: that can't be written is an empty one. The index is copied (it is small), the content is linked.
_WITH_CACHE = """mkdir -p "$TMPDIR/npm/_cacache"
cp -r "$1/_cacache/index-v5" "$TMPDIR/npm/_cacache"
ln -s "$1/_cacache/content-v2" "$TMPDIR/npm/_cacache"
shift; exec "$@" --cache="$TMPDIR/npm"
"""


class Installation:
    """One project folder of one tree (patched, or the base commit's)."""

    def __init__(self, context: GateContext, repo: RepoContext, folder: str) -> None:
        self._context = context
        self._repo = repo
        self.folder = folder
        self.manifest = in_folder(folder, MANIFEST)
        self._facts = parse_manifest(self.manifest, repo.read_text(self.manifest))
        self._cache = context.cache / "npm"

    @property
    def has_dependencies(self) -> bool:
        """Does the manifest declare anything to install?"""
        return any(self._facts.get(section) for section in (*SECTIONS, "workspaces"))

    @property
    def has_tests(self) -> bool:
        """Is there a test script, and not just the one that `npm init` writes?"""
        script = self._script("test")
        return bool(script) and _PLACEHOLDER not in script

    @property
    def has_build(self) -> bool:
        """Is there a build script?"""
        return bool(self._script("build"))

    def _script(self, name: str) -> str:
        scripts = self._facts.get("scripts")
        script = scripts.get(name) if isinstance(scripts, dict) else None
        return script.strip() if isinstance(script, str) else ""

    @property
    def foreign_lock(self) -> str | None:
        """Another client's lock, where npm has none of its own."""
        names = () if self.verb == "ci" else FOREIGN_LOCKS
        found = (in_folder(self.folder, name) for name in names)
        return next((path for path in found if self._repo.has(path)), None)

    @property
    def verb(self) -> str:
        """`ci` follows the lock; without one, `install` resolves."""
        locked = any(self._repo.has(in_folder(self.folder, lock)) for lock in LOCKS)
        return "ci" if locked else "install"

    def prefetch(self) -> CommandResult:
        """Fill the cache from the registry, over copies of the manifests: no scripts, no git."""
        done = self._mark()
        if done.exists():
            return CommandResult(argv=("npm",), exit_code=0, output="", duration_ms=0)
        arguments = [*self._arguments(), "--allow-git=none", f"--cache={self._cache}"]
        with gating.scratch(self._context) as scratch:
            for path, text in self._manifests().items():
                place = scratch / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(text.encode())
            result = self._context.clients.run(
                "npm", arguments, cwd=scratch / self.folder, timeout_s=self._context.timeout_s
            )
            output = gating.relative_log(result, scratch)
            if result.ok:
                done.write_text(self._registry(scratch))
        return result.model_copy(update={"output": output})

    def forget(self) -> None:
        """Fetch anew next time."""
        self._mark().unlink(missing_ok=True)

    def install(self) -> CommandResult:
        """Install into the tree, inside the sandbox, from the cache alone. The cache knows what it
        holds by URL, and the user's configuration, which says where that is, stays outside."""
        registry = self._mark().read_text()
        command = ["npm", *self._arguments(), "--offline", f"--registry={registry}"]
        return self.sandboxed(["sh", "-c", _WITH_CACHE, "sh", str(self._cache), *command])

    def ready(self) -> bool:
        """Are the dependencies there? The base commit's tree gets them here."""
        if not self.has_dependencies or self._repo.tree.has_folder(f"{self.folder}/node_modules"):
            return True
        if self._repo.tree == self._context.worktree.tree:
            # The gate before installed them, or said why not; a run that was taken up behind that gate
            # has a worktree without them, and the cache still has what was fetched.
            return self._mark().exists() and self.install().ok
        return self.prefetch().ok and self.install().ok

    def installed(self) -> bool:
        """Have the dependencies in any tree, patched or not; False where npm can't install them.

        Raises ToolFailedError where the registry did not answer: that says nothing about the tree.
        """
        if not self.has_dependencies or self._repo.tree.has_folder(f"{self.folder}/node_modules"):
            return True
        if self.foreign_lock:
            return False
        fetched = self.prefetch()
        if not fetched.ok:
            gating.check_reachable("npm", fetched)
        return fetched.ok and self.install().ok

    def sandboxed(self, argv: Sequence[str]) -> CommandResult:
        """Run a command of the target, in this folder."""
        self._cache.mkdir(parents=True, exist_ok=True)
        return self._context.sandbox.run(
            gating.command_in(self.folder, argv),
            worktree=self._repo.tree,
            timeout_s=self._context.timeout_s,
            readable=[self._cache],
        )

    def build(self) -> CommandResult:
        """Run the build script; the output's paths are relative."""
        result = self.sandboxed(["npm", "run", "build"])
        return result.model_copy(update={"output": gating.relative_log(result, self._repo.root)})

    def _manifests(self) -> dict[str, str]:
        """What npm resolves from: this folder's manifests and locks, workspaces included."""
        return {
            path: self._repo.read_text(path)
            for path in self._repo.manifests
            if PurePosixPath(path).name in {MANIFEST, *LOCKS}
            and PurePosixPath(path).is_relative_to(self.folder)
        }

    def _registry(self, folder: Path) -> str:
        """Where npm fetches from, in a folder without a configuration of its own."""
        ask = ["config", "get", "registry", "--loglevel=error"]
        return self._context.clients.run(
            "npm", ask, cwd=folder, timeout_s=self._context.timeout_s
        ).output.strip()

    def _mark(self) -> Path:
        """The file that says that this was fetched, and where from."""
        key = gating.content_key(self._manifests(), self.folder, self._arguments())
        return self._cache / f"fetched-{key}"

    def _arguments(self) -> list[str]:
        lock = "--package-lock" if self.verb == "ci" else "--no-package-lock"
        options = ["--ignore-scripts", "--include=dev", "--no-audit", "--no-fund"]
        options += ["--no-update-notifier", "--loglevel=error", "--logs-max=0"]
        return [self.verb, lock, *options, *self._peer_option()]

    def _peer_option(self) -> list[str]:
        """The one setting of the project's .npmrc that decides what resolves. The file itself stays
        out of reach of the npm outside the sandbox: it can name programs to run."""
        path = in_folder(self.folder, ".npmrc")
        text = self._repo.read_text(path) if self._repo.has(path) else ""
        wanted = re.search(r"^\s*legacy-peer-deps\s*=\s*true\s*$", text, re.MULTILINE)
        return ["--legacy-peer-deps"] if wanted else []
