"""The packages that a repository's install commands install at its base commit, for ``scan``."""

from typing import Annotated

from pydantic import Field

from fallback_audit.frozen import Frozen
from fallback_tier.outcome import UnreadItem


class InstalledPackage(Frozen):
    """One installed version of a package. ``source``: the lock, or the manifest that was resolved.

    ``path`` leads from a root to it; every part after the first is ``name version``. A package that nothing
    requires has the path of itself alone. ``direct``: a manifest of the repository requires it.
    ``development``: it is installed for development alone, as far as the manifests say; a package of which
    they don't is not.
    """

    name: str
    version: str
    source: str
    path: Annotated[tuple[str, ...], Field(min_length=1)]
    direct: bool
    development: bool = False


class Inventory(Frozen):
    """All installed packages of one ecosystem; ``unread``: what may install more, and was not read or
    resolved; ``inside``: projects that were looked at; ``outside``: those that ``Settings.paths`` leaves
    out. Nothing that was not read or looked at is called free of vulnerabilities."""

    packages: tuple[InstalledPackage, ...] = ()
    unread: tuple[UnreadItem, ...] = ()
    inside: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
