"""``fallback-tier fleet example DIR``: a small campaign to try, with real fixes and a scripted model."""

import argparse
import json
import sys
from pathlib import Path

from fallback_tier.demo.projects import copy_project, shipped
from fallback_tier.errors import ConfigurationError
from fallback_tier.sandbox.clients import SubprocessClients

#: Separate repositories, with the same vulnerability.
REPOSITORIES = ("archive", "intranet", "shop")

_ADVISORY, _PROOF = "advisories/DEMO-2026-0002.json", "proofs/retry.py"

_EDIT = {
    "path": "knobfile.py",
    "old": "    return eval(text.strip())",
    "new": "    return ast.literal_eval(text.strip())",
}

#: The model's answer in each fix.
PLAN = {
    "action": "source_edit",
    "edits": [_EDIT],
    "rationale": "ast.literal_eval of the standard library reads literals, and runs nothing.",
    "citations": [],
}

CAMPAIGN = """\
# A small campaign to try (docs/fleet.md): the fixes and their gates are real, the model is a script.
# shop has a test of the flaw, so its fix can be seen to hold; the others' tests pass, which shows less.
name = "example"
advisories = ["advisories"]
checkouts = ["checkouts"]

[[proofs]]
repository = "shop"
advisory = "DEMO-2026-0002"
command = ["python", "-m", "unittest", "flaw_test"]
files = { "flaw_test.py" = "proofs/flaw_test.py" }

[limits]
fixes_per_host = 2
usd = "1"
usd_per_fix = "0.25"

[model]
script = "answers.json"
price = "1:5"

[delivery]
patches = "patches"
"""


def run(arguments: argparse.Namespace) -> int:
    """Make the folder. Raises ConfigurationError if it exists and is not empty."""
    campaign_dir = Path(arguments.folder)
    make(campaign_dir)
    sys.stdout.write(
        f"{campaign_dir} has {len(REPOSITORIES)} repositories and a campaign. Run it with:\n"
        f"  fallback-tier fleet run {campaign_dir}/CAMPAIGN.toml --state-dir {campaign_dir}/state\n"
    )
    return 0


def make(campaign_dir: Path) -> None:
    """Make the campaign's folder. Raises ConfigurationError."""
    try:
        campaign_dir.mkdir(parents=True, exist_ok=True)
        is_empty = not any(campaign_dir.iterdir())
    except OSError as error:
        raise ConfigurationError(
            f"{campaign_dir} can't be made: {error.strerror}.", next_step="Name another folder."
        ) from error
    if not is_empty:
        raise ConfigurationError(
            f"{campaign_dir} is not empty.", next_step="Name a folder that is not there yet."
        )
    for name in REPOSITORIES:
        copy_project("retry", campaign_dir / "checkouts" / name, SubprocessClients())
    for folder, source, name in (
        ("advisories", _ADVISORY, "DEMO-2026-0002.json"),
        ("proofs", _PROOF, "flaw_test.py"),
    ):
        (campaign_dir / folder).mkdir()
        with shipped(source) as path:
            (campaign_dir / folder / name).write_bytes(path.read_bytes())
    (campaign_dir / "answers.json").write_text(json.dumps([PLAN], indent=2) + "\n")
    (campaign_dir / "CAMPAIGN.toml").write_text(CAMPAIGN)
