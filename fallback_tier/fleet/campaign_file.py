"""CAMPAIGN.toml, read: its paths are relative to the file, whatever is wrong is named."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fallback_tier.errors import first_fault
from fallback_tier.files.inputs import open_named, parse_toml
from fallback_tier.fleet.campaign import Campaign
from fallback_tier.fleet.refusals import CampaignError

#: A campaign of ten thousand named repositories is some 1 MB.
MAX_FILE_BYTES = 8 * 1024 * 1024


def read_campaign(path: Path) -> Campaign:
    """Raises CampaignError naming the file, the key, the reason and the next step."""
    try:
        with open_named(path) as file:
            data = file.read(MAX_FILE_BYTES + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise CampaignError(
            f"{path}: {reason}.",
            next_step="Name a campaign's TOML file that can be read.",
            kind="unreadable",
        ) from error
    if len(data) > MAX_FILE_BYTES:
        raise CampaignError(
            f"{path} is larger than {MAX_FILE_BYTES:,} bytes.",
            next_step="Make several campaigns, or name folders of checkouts.",
            kind="too_large",
        )
    return parse_campaign(text, path)


def parse_campaign(text: str, path: Path) -> Campaign:
    """As ``read_campaign``; relative paths are below the folder of ``path``."""
    try:
        facts: dict[str, Any] = parse_toml(text)
    except (ValueError, RecursionError) as error:
        raise CampaignError(
            f"{path} is not TOML: {error}.",
            next_step="Correct this place.",
            kind="not_toml",
        ) from error
    _root_paths(facts, path.absolute().parent)
    try:
        return Campaign.model_validate(facts)
    except ValidationError as error:
        raise CampaignError(
            f"{path}: {first_fault(error, 'the whole')}.",
            next_step="docs/fleet.md has every key and an example.",
            kind="not_valid",
        ) from error


#: Where paths stand: keys of the file, and of its tables.
_PATHS = {
    "": ("advisories", "checkouts"),
    "engine": ("tls_ca", "tls_cert", "tls_key"),
    "priority": ("epss", "kev"),
    "delivery": ("patches", "reports"),
    "model": ("script", "examples"),
}


def _root_paths(facts: dict[str, Any], root: Path) -> None:
    """Paths are relative to the file, wherever it is called from. What is of no use is left to the
    models to refuse."""
    tables = [(facts.get(name) if name else facts, keys) for name, keys in _PATHS.items()]
    proofs = facts.get("proofs")
    if isinstance(proofs, list):
        tables += [(table, ("files",)) for table in proofs]
    repositories = facts.get("repositories")
    if isinstance(repositories, dict):
        tables += [(table, ("path", "advisories")) for table in repositories.values()]
    for table, keys in tables:
        if isinstance(table, dict):
            for key in keys:
                if key in table:
                    table[key] = _rooted(table[key], root)


def _rooted(value: object, root: Path) -> object:
    if isinstance(value, str):
        return str(root / value)
    if isinstance(value, list):
        return [_rooted(item, root) for item in value]
    if isinstance(value, dict):
        return {key: _rooted(item, root) for key, item in value.items()}
    return value
