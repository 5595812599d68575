"""All that ``fallback-tier serve`` and workers import, for the process whose forks they are (``forks``)."""

import gc
from contextlib import suppress
from importlib import import_module

for name in (
    "fallback_tier.cli.main",
    "fallback_tier.cli.serve.command",
    "fallback_tier.observing.http",
    "fallback_tier.observing.observer",
    "fallback_tier.portal.mounting",
    "fallback_tier.service.opening",
    "fallback_tier.service.serving",
    "tests.engines.worker",
):
    with suppress(ImportError):  # an extra that is not installed: whoever asks for it is told
        import_module(name)
gc.freeze()  # or each fork's first collection copies all that was imported
