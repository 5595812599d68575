"""Public names of a package, imported on first use: a caller that needs one imports no other."""

from importlib import import_module

TYPE_CHECKING = False  # as in fallback_tier/__init__.py
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def exported(package: str, homes: "Mapping[str, str]", name: str) -> "Any":
    """Return a public name, for ``__getattr__``. ``homes``: name → its module. Raises AttributeError."""
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return getattr(import_module(homes[name]), name)
