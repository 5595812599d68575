"""The PyPI plugin."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fallback_tier.execution import ClientRunner
    from fallback_tier.ports import EcosystemPlugin


def build_ecosystem(clients: "ClientRunner") -> "EcosystemPlugin":
    """The plugin, as the entry point ``fallback_tier.ecosystems`` names it."""
    from fallback_plugins.pypi.ecosystem import PyPIEcosystem

    return PyPIEcosystem(clients)
