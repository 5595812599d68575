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
    reported = clients.run("almanac", ["releases", name], cwd=Path("/"), timeout_s=_TIMEOUT_S)
    if not reported.ok:
        raise ToolFailedError(
            f"almanac can't tell the releases of {name}: {reported.output.strip()}",
            next_step="Check ALMANAC_REGISTRY.",
            output=reported.output,
        )
    found: dict[str, str] = json.loads(reported.output)
    return found


def release(name: str, version: str, text: str) -> Release:
    digest = sha256(text.encode()).hexdigest()
    return Release(name, version, f"https://almanac.example/{name}/{version}", f"sha256:{digest}")
