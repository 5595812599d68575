"""Options of commands that install packages: which of them take the next word.

``pip install --exists-action w`` installs no package ``w``, and ``pipx install -f left`` installs ``left``.
An unknown option counts as one that takes none: the next word is a package then. The tables are pip's (its
old releases included), uv's and pipx's own; a test compares them with pip's parser and uv's help.
"""

import re
from typing import Final

from fallback_plugins.shared.commands import words_of

#: Of ``pip install``, ``wheel`` and ``download``; from ``--allow-external`` on, of old releases.
_PIP: Final = words_of("""
    --abi --all-releases --build-constraint --build-option --cache-dir --cert --client-cert
    --config-settings --constraint --default-timeout --dest --destination-dir
    --destination-directory --editable --exists-action --extra-index-url --find-links
    --global-option --group --implementation --index-url --keyring-provider --local-log --log
    --log-file --no-binary --only-binary --only-final --platform --prefix --progress-bar --proxy
    --pypi-url --python --python-version --report --requirement --requirements-from-script
    --resume-retries --retries --root --root-user-action --source --source-dir --source-directory
    --src --target --timeout --trusted-host --upgrade-strategy --uploaded-prior-to --use-deprecated
    --use-feature --wheel-dir -C -c -d -e -f -i -r -t -w --allow-external --allow-unverified --build
    --build-dir --build-directory --download --download-cache --install-option -b
""")

#: Of ``uv tool install``, ``uv tool run`` (``uvx``) and ``uv run``, and with the next ones of ``uv pip
#: install``; lists in the singular too. Not ``--with`` and its like, which name packages.
_UV: Final = words_of("""
    --allow-insecure-host --build-constraint --build-constraints --cache-dir --cert --color
    --config-file --config-setting --config-settings --config-settings-package --constraint
    --constraints --default-index --directory --env-file --exclude --exclude-newer
    --exclude-newer-package --excludes --extra --extra-index-url --find-links --fork-strategy
    --group --index --index-strategy --index-url --keyring-provider --link-mode --no-binary-package
    --no-build-isolation-package --no-build-package --no-editable-package --no-extra --no-group
    --no-sources-package --only-group --output-format --override --overrides --package --prefix
    --prerelease --prerelease-package --preview-features --project --python --python-fetch
    --python-platform --python-preference --python-version
    --refresh-package --reinstall-package --requirement --requirements --resolution --target
    --torch-backend --trusted-host --upgrade-group --upgrade-package --with-editable
    --with-requirements -C -P -b -c -f -i -p -r -t
""")
_UV_PIP: Final = _UV | {"--editable", "--no-binary", "--only-binary", "-e"}

#: Of ``pipx install``, ``inject`` and ``run``. Not ``--with`` and ``--preinstall``, which name packages.
_PIPX: Final = words_of("""
    --backend --fetch-python --index-url --pip-args --python --requirement --spec --suffix -i -r
""")

_BY_CLIENT: Final = {"pip": _PIP, "uv": _UV, "uv pip": _UV_PIP, "pipx": _PIPX}

#: Flags of pip that begin an option with a value: pip lets an option be shortened.
_FLAGS: Final = frozenset({"--pre", "--upgrade"})

#: Flags that may stand before another short option in one word (``-qr a.txt``), as a pattern.
SHORT_FLAGS: Final = "[qvUIVhn]*"
_SHORT = re.compile(rf"-{SHORT_FLAGS}(?P<last>[A-Za-z])")


def client_of(command: str, part: str | None) -> str:
    """Return the client of a command: pip, pipx, uv (``uvx`` too) or uv pip. ``part``: uv's part, if it
    names one."""
    if not command.startswith("uv"):
        return "pipx" if command.startswith("pipx") else "pip"
    return "uv pip" if part == "pip" else "uv"


def takes_word(client: str, option: str) -> bool:
    """Return whether the next word is the option's value. Return False for a word that is not an option.

    ``client``: as ``client_of`` returns it.
    """
    options = _BY_CLIENT[client]
    if match := _SHORT.fullmatch(option):
        return f"-{match['last']}" in options
    if option in options:
        return True
    may_be_short = client == "pip" and len(option) > len("--x") and option not in _FLAGS
    return may_be_short and any(name.startswith(option) for name in options)
