"""How each client is told to install, outside the sandbox, over copies of texts.

No script of anyone's runs, no git repository is cloned, no configuration of the target's is in reach, and
those clients that node runs for us can start no program at all: a lock of theirs can name a generator, or a
repository to be packed, and nothing else would stop those.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fallback_plugins.npm.clients.hosts import run_client
from fallback_plugins.npm.clients.npm_run import peer_options
from fallback_plugins.npm.clients.provision import NO_GIT, ClientStore, PinnedClient
from fallback_plugins.npm.clients.yarn import ENVIRONMENT, HOOKS, YARN
from fallback_plugins.npm.installing.inputs import Inputs
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner, CommandResult

#: The last yarn of each line that this Node runs, by the lowest format of yarn.lock that it writes.
BERRY = {
    8: PinnedClient(
        "@yarnpkg/cli-dist",
        "4.9.4",
        "sha512-q504Eb++phLdYrVWhHLNpTwlwPkqz+w/+ydkSJUIP2SWKPUoeIllFD0xGVAWOR0pImxYwEjaRVXfdfVeJP6wqA==",
        "bin/yarn.js",
        "82fe2034dc42ce74d2b165c6469a29ceab03be22f21923ab08232ae11b11c254",
        "yarn",
    ),
    0: PinnedClient(
        "@yarnpkg/cli-dist",
        "3.8.7",
        "sha512-YMoAlLR9f+kxXjK72ggBIidi3ulQQrQpMSxzrLUt0OUk9Xdst2v26LBSYFlzOm+7KRNWgYIJpFjA8uRnCgB5xQ==",
        "bin/yarn.js",
        "41a86ee8fcde7091d514e36ce9a8d7e3027e89ff94599ab210b8fe0cddf2cbcd",
        "yarn",
    ),
}

_NPM = (
    "--ignore-scripts",
    "--include=dev",
    "--install-links=false",
    "--allow-git=none",
    "--no-audit",
    "--no-fund",
    "--no-update-notifier",
    "--loglevel=error",
    "--logs-max=0",
)

_YARN = ("--ignore-scripts", "--ignore-engines", "--non-interactive", "--no-progress", "--no-emoji")

_PNPM = (
    "--ignore-scripts",
    "--ignore-pnpmfile",
    "--reporter=append-only",
    "--package-import-method=copy",
    # One folder of modules, as npm makes it, and nothing in it that names this machine's folders.
    "--config.node-linker=hoisted",
    "--config.extend-node-path=false",
    # It waits a minute before it asks a third time for what is not there.
    "--config.fetch-retry-maxtimeout=5000",
    "--config.fetch-retry-mintimeout=1000",
    "--config.strict-peer-dependencies=false",
    "--config.engine-strict=false",
    "--config.package-manager-strict=false",
    "--config.manage-package-manager-versions=false",
)

_BERRY_ENVIRONMENT = {
    "YARN_IGNORE_PATH": "1",
    "YARN_NODE_LINKER": "node-modules",
    "YARN_NM_HOISTING_LIMITS": "none",
    "YARN_ENABLE_SCRIPTS": "false",
    "YARN_ENABLE_TELEMETRY": "false",
    "YARN_ENABLE_COLORS": "false",
    "YARN_ENABLE_PROGRESS_BARS": "false",
}


@dataclass(frozen=True)
class Commands:
    """The clients, and folders of ours in which they keep what they fetched."""

    clients: ClientRunner
    store: ClientStore
    cache: Path
    timeout_s: float

    def npm(self, inputs: Inputs, folder: Path, words: Sequence[str]) -> CommandResult:
        """The user's own npm."""
        options = [*_NPM, *peer_options(inputs.files), f"--cache={self.cache / 'npm'}"]
        command = [*words, *dict.fromkeys(options)]
        return run_client(
            self.clients, "npm", command, cwd=folder, timeout_s=self.timeout_s, env=NO_GIT
        )

    def yarn(
        self, folder: Path, words: Sequence[str], *, only_resolves: bool = False
    ) -> CommandResult:
        """yarn classic, in our version. ``only_resolves``: it writes the lock, and installs nothing."""
        cache = self.cache / "yarn"
        places = [f"--cache-folder={cache}", f"--mutex=file:{cache}.mutex"]
        hooks = HOOKS if only_resolves else ""
        return self._node(YARN, folder, ["install", *_YARN, *places, *words], ENVIRONMENT, hooks)

    def berry(
        self, client: PinnedClient, folder: Path, compression: str, *, frozen: bool
    ) -> CommandResult:
        """yarn from version 2 on, in ours. It reads no npm configuration: the registry is told."""
        registry = self.registry(folder)
        env = {
            **_BERRY_ENVIRONMENT,
            "YARN_GLOBAL_FOLDER": str(self.cache / client.folder.replace("@", "")),
            "YARN_ENABLE_IMMUTABLE_INSTALLS": "true" if frozen else "false",
            "YARN_NPM_REGISTRY_SERVER": registry,
            "YARN_COMPRESSION_LEVEL": compression,
        }
        if registry.startswith("http:"):
            env["YARN_UNSAFE_HTTP_WHITELIST"] = registry.split("/")[2].partition(":")[0]
        # Without this the scripts of the root and of members run, whatever is said of scripts.
        return self._node(client, folder, ["install", "--mode=skip-build"], env)

    def pnpm(self, client: PinnedClient, folder: Path, words: Sequence[str]) -> CommandResult:
        """pnpm, in the version that wrote the lock's format."""
        options = [*_PNPM, f"--store-dir={self.store.place / 'pnpm-store'}"]
        return self._node(client, folder, ["install", *options, *words], {"CI": "1"})

    def registry(self, folder: Path) -> str:
        """Where npm fetches from, in a folder without a configuration of its own."""
        ask = ["config", "get", "registry", "--loglevel=error"]
        reported = self.clients.run("npm", ask, cwd=folder, timeout_s=self.timeout_s)
        return (reported.output.split() or [""])[-1]

    def _node(
        self,
        client: PinnedClient,
        folder: Path,
        words: Sequence[str],
        env: Mapping[str, str],
        hooks: str = "",
    ) -> CommandResult:
        try:
            return self.store.run(
                client,
                words,
                clients=self.clients,
                cwd=folder,
                timeout_s=self.timeout_s,
                env=env,
                hooks=hooks,
            )
        except RecipeError as error:  # what the ladder then says of this step
            return CommandResult(argv=("npm",), exit_code=1, output=error.problem, duration_ms=0)
