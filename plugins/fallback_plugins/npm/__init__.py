"""The npm plugin."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fallback_tier.ecosystem_rules import EcosystemRules
    from fallback_tier.execution import ClientRunner
    from fallback_tier.ports import EcosystemPlugin


class _Factory:
    """The entry point's factory (ports.EcosystemFactory). Its rules import little."""

    @property
    def rules(self) -> "EcosystemRules":
        from fallback_plugins.npm.rules import NpmRules

        return NpmRules()

    def __call__(self, clients: "ClientRunner") -> "EcosystemPlugin":
        from fallback_plugins.npm.plugin import NpmEcosystem

        return NpmEcosystem(clients)


build_ecosystem = _Factory()
