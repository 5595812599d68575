"""The Almanac: packages of shell functions, released by date. Step 1 of docs/ecosystem.md: the entry."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fallback_tier.ecosystem_rules import EcosystemRules
    from fallback_tier.execution import ClientRunner
    from fallback_tier.ports import EcosystemPlugin


class Factory:
    """What the entry point names (ports.EcosystemFactory)."""

    @property
    def rules(self) -> "EcosystemRules":
        from almanac_plugin.rules import AlmanacRules

        return AlmanacRules()

    def __call__(self, clients: "ClientRunner") -> "EcosystemPlugin":
        from almanac_plugin.ecosystem import AlmanacEcosystem

        return AlmanacEcosystem(clients)


build_ecosystem = Factory()
