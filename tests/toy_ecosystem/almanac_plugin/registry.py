"""What the client says of the registry. It runs outside the sandbox, and no code of a target with it."""

import json
from hashlib import sha256
from pathlib import Path

from almanac_plugin.files import Release

from fallback_tier.errors import ToolFailedError
from fallback_tier.execution import ClientRunner

#: Wall clock of one question (s); the registry is a folder.
_TIMEOUT_S = 30.0


def published(name: str, clients: ClientRunner) -> dict[str, str]:
    """Version → text of the package. Raises ToolMissingError, ToolFailedError."""
    told = clients.run("almanac", ["releases", name], cwd=Path("/"), timeout_s=_TIMEOUT_S)
    if not told.ok:
        raise ToolFailedError(
            f"almanac can't tell the releases of {name}: {told.output.strip()}",
            next_step="Check ALMANAC_REGISTRY.",
            output=told.output,
        )
    found: dict[str, str] = json.loads(told.output)
    return found


def release(name: str, version: str, text: str) -> Release:
    digest = sha256(text.encode()).hexdigest()
    return Release(name, version, f"https://almanac.example/{name}/{version}", f"sha256:{digest}")
