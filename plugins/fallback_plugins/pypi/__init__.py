"""The PyPI plugin."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fallback_tier.ecosystem_rules import EcosystemRules
    from fallback_tier.execution import ClientRunner
    from fallback_tier.ports import EcosystemPlugin


class _Factory:
    """The factory that the entry point ``fallback_tier.ecosystems`` names (ports.EcosystemFactory). The
    rules are needed far more often than the plugin, and import little."""

    @property
    def rules(self) -> "EcosystemRules":
        from fallback_plugins.pypi.rules import PyPIRules

        return PyPIRules()

    def __call__(self, clients: "ClientRunner") -> "EcosystemPlugin":
        from fallback_plugins.pypi.plugin import PyPIEcosystem

        return PyPIEcosystem(clients)


build_ecosystem = _Factory()
