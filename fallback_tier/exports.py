"""Public names of a package, imported when they are first used: whoever needs one pays for no other."""

from importlib import import_module

TYPE_CHECKING = False  # as in fallback_tier/__init__.py
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def exported(package: str, homes: "Mapping[str, str]", name: str) -> "Any":
    """For a package's ``__getattr__``. ``homes``: name → the module it is in. Raises AttributeError."""
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return getattr(import_module(homes[name]), name)
