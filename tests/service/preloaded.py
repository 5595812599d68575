"""All that ``fallback-tier serve`` imports, for the process whose forks are services (``forked``)."""

import gc
from importlib import import_module

for name in (
    "fallback_tier.cli.main",
    "fallback_tier.cli.serve.command",
    "fallback_tier.observing.http",
    "fallback_tier.observing.observer",
    "fallback_tier.portal.mounting",
    "fallback_tier.service.opening",
    "fallback_tier.service.serving",
):
    import_module(name)
gc.freeze()  # or each fork's first collection copies all that was imported
