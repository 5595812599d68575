"""The core metadata of a wheel: what a release says of itself."""

from dataclasses import dataclass
from email.parser import HeaderParser
from functools import cached_property
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from fallback_plugins.pypi.resolving.resolver import resolver_failed


@dataclass(frozen=True)
class Metadata:
    """The core metadata of a wheel, as its text."""

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
