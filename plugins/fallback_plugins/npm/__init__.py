"""The npm plugin."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fallback_tier.execution import ClientRunner
    from fallback_tier.ports import EcosystemPlugin


def build_ecosystem(clients: "ClientRunner") -> "EcosystemPlugin":
    """The plugin, as the entry point ``fallback_tier.ecosystems`` names it."""
    from fallback_plugins.npm.ecosystem import NpmEcosystem

    return NpmEcosystem(clients)
