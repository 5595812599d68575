"""Whose code an advisory is about in a repository: one fact, which all later code reads (ADR-0037)."""

from typing import Annotated

from pydantic import Field

from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import AffectedCode, DecidedBy


class OwnPackage(Frozen):
    """A package that this repository is the source of, as one of its manifests declares it.

    ``name`` is canonical in its ecosystem. ``version`` None: computed when it is built, or a placeholder.
    ``links``: where the manifest says that its source and its pages are. ``asks_for_itself``: what it
    installs when it runs holds a package of this very name from a registry. ``doubt``: why the manifest
    may speak of something else, as a clause; empty where it does not.
    """

    name: Annotated[str, Field(min_length=1)]
    manifest: str
    version: str | None = None
    links: tuple[str, ...] = ()
    asks_for_itself: bool = False
    doubt: str = ""

    @property
    def label(self) -> str:
        """The name, the version if it is known, and the manifest."""
        version = "" if self.version is None else f" {self.version}"
        return f"{self.name}{version} ({self.manifest})"


class Affected(Frozen):
    """The fact, and what told it. ``own``: packages of the advisory that this repository is the source of.

    ``sentence`` says why, for a person.
    """

    code: AffectedCode
    decided_by: DecidedBy
    own: tuple[OwnPackage, ...] = ()
    sentence: str = ""

    @property
    def is_own(self) -> bool:
        """Whether the repository's own source is to be edited, and no dependency to be raised."""
        return self.code is AffectedCode.OWN
