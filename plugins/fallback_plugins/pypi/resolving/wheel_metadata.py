"""The core metadata of a release: what it says of itself."""

from dataclasses import dataclass
from email.parser import HeaderParser
from functools import cached_property
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from fallback_plugins.pypi.resolving.resolver import resolver_failed


@dataclass(frozen=True)
class Metadata:
    """The core metadata of a wheel or a source archive, as its text."""

    text: str

    @cached_property
    def _headers(self) -> Any:
        return HeaderParser().parsestr(self.text)

    @property
    def summary(self) -> str:
        """The one-line description; empty where there is none."""
        value = self._headers.get("Summary", "")
        return "" if value == "UNKNOWN" else str(value)

    @property
    def requires_python(self) -> str:
        """As written; empty where the package doesn't say."""
        return str(self._headers.get("Requires-Python", ""))

    @property
    def lists_requirements(self) -> bool:
        """Return whether a source archive's metadata has all that a build would (PEP 643)."""
        version = str(self._headers.get("Metadata-Version", "")).partition(".")
        is_new = all(it.isdigit() for it in version[::2]) and (
            int(version[0]),
            int(version[2]),
        ) >= (2, 2)
        dynamic = {str(it).strip().lower() for it in self._headers.get_all("Dynamic", ())}
        return is_new and dynamic.isdisjoint({"requires-dist", "provides-extra"})

    @cached_property
    def requirements(self) -> tuple[Requirement, ...]:
        """What it requires, extras' requirements too, in its order. Raises RecipeError."""
        try:
            return tuple(Requirement(it) for it in self._headers.get_all("Requires-Dist", ()))
        except InvalidRequirement as error:
            raise resolver_failed(f"A requirement can't be read: {error}.") from error

    @property
    def extras(self) -> tuple[str, ...]:
        """Extras it provides, in its order."""
        return tuple(str(extra) for extra in self._headers.get_all("Provides-Extra", ()))
