"""Options of npm, yarn, pnpm and bun: which of them take the next word.

``npm install --loglevel error`` installs no package ``error``, and ``pnpm add -w left`` installs ``left``.
An unknown option counts as one that takes none: the next word is a package then. npm's table is that of its
own definitions (version 11), but for options that older releases take for flags; a test compares it.
"""

from typing import Final

from fallback_plugins.shared.commands import words_of

#: npm and npx. The last line: what is written shorter.
_NPM: Final = words_of("""
    --_auth --access --allow-directory --allow-file --allow-git --allow-remote --also
    --audit-level --auth-type --before --ca --cache --cache-max --cache-min --cafile --call --cert --cidr
    --cpu --depth --diff --diff-dst-prefix --diff-src-prefix --diff-unified --editor
    --expect-result-count --expires --fetch-retries --fetch-retry-factor --fetch-retry-maxtimeout
    --fetch-retry-mintimeout --fetch-timeout --git --globalconfig --heading --https-proxy --include
    --init-author-email --init-author-name --init-author-url --init-license --init-module --init-type
    --init-version --init.author.email --init.author.name --init.author.url --init.license --init.module
    --init.version --install-strategy --key --libc --local-address --location --lockfile-version
    --loglevel --logs-dir --logs-max --maxsockets --message --min-release-age --min-release-age-exclude
    --node-gyp --node-options --noproxy --omit --only --orgs --orgs-permission --os --otp
    --pack-destination --package --packages --packages-and-scopes-permission --password --prefix --preid
    --provenance-file --proxy --registry --replace-registry-host --save-prefix --sbom-format --sbom-type
    --scope --scopes --script-shell --searchexclude --searchlimit --searchopts --searchstaleness --shell
    --tag --tag-version-prefix --token-description --umask --user-agent --userconfig --viewer --which
    --workspace
    --enjoy-by --reg -C -L -c -m -w
""")

#: yarn 1, and ``--mode`` of later versions.
_YARN: Final = words_of("""
    --cache-folder --cwd --global-folder --https-proxy --link-folder --mode --modules-folder --mutex
    --network-concurrency --network-timeout --otp --preferred-cache-folder --prefix --proxy
    --registry --tag --use-yarnrc
""")

_PNPM: Final = words_of("""
    --allow-build --ca --cache-dir --cafile --cert --changed-files-ignore-pattern --child-concurrency
    --config-dir --cpu --dir --fetch-retries --fetch-retry-factor --fetch-retry-maxtimeout
    --fetch-retry-mintimeout --fetch-timeout --filter --filter-prod --global-dir --global-pnpmfile
    --globalconfig --hoist-pattern --https-proxy --key --libc --lockfile-dir --lockfile-directory
    --loglevel --minimum-release-age
    --modules-dir --network-concurrency --node-linker --node-options --noproxy --os --otp
    --package-import-method --pnpmfile --prefix --proxy --public-hoist-pattern --registry --reporter
    --resolution-mode --save-catalog-name --save-prefix --script-shell --state-dir --store --store-dir --tag
    --test-pattern --use-node-version --userconfig --virtual-store-dir --virtual-store-dir-max-length
    --workspace-concurrency -C -F
""")

_BUN: Final = words_of("""
    --backend --ca --cache-dir --cafile --concurrent-scripts --config --cpu --cwd --filter --linker
    --minimum-release-age --network-concurrency --omit --os --registry -F -c
""")

#: npx, whose removed options still take their value.
_NPX: Final = _NPM | words_of("--node-arg --npm -n")

_BY_CLIENT: Final = {"npx": _NPX, "npm": _NPM, "yarn": _YARN, "pnpm": _PNPM, "bun": _BUN}


def takes_word(client: str, option: str) -> bool:
    """Return whether the next word is the option's value; for ``--package``, a package. ``client``: npm,
    npx, yarn, pnpm or bun."""
    return option in _BY_CLIENT[client]
