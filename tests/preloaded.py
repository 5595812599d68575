"""All that ``fallback-tier fix``, ``serve`` and workers import, at their start or later, for the process
whose forks they are (``forks``)."""

import gc
from contextlib import suppress
from importlib import import_module

from tests.warming import warm

for name in (
    "fallback_tier.cli.main",
    "fallback_tier.cli.fix.command",
    "fallback_tier.cli.fleet.parser",
    "fallback_tier.cli.fleet.run_command",
    "fallback_tier.cli.fleet.showing",
    "fallback_tier.cli.serve",
    "fallback_tier.observing.http",
    "fallback_tier.observing.observer",
    "fallback_tier.portal.mounting",
    "fallback_tier.service.opening",
    "fallback_tier.service.serving",
    "fallback_tier.service.dispatch",
    "fallback_tier.fleet.local.engine",
    "fallback_tier.fleet.local.main",
    "fallback_tier.fix.parts",
    "fallback_tier.sandbox.runners",
    "fallback_plugins.npm.plugin",
    "fallback_plugins.npm.gates.all_gates",
    "fallback_plugins.pypi.plugin",
    "fallback_plugins.pypi.gates",
    "anyio._backends._asyncio",
    "platformdirs.unix",
    "psycopg",
    "rich._emoji_codes",
    "sqlite_utils",
    "tomlkit",
    "tests.engines.worker",
    "tests.forked_workers",
):
    with suppress(ImportError):  # an extra that is not installed: whoever asks for it is told
        import_module(name)
warm()
gc.freeze()  # or each fork's first collection copies all that was imported
