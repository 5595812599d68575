"""The load campaign: ``python -m tests.campaigns.load --report`` writes docs/evaluation/service.md."""

import argparse
import asyncio
import json
import tempfile
from pathlib import Path

from tests.campaigns.load.campaign import Sizes, campaign
from tests.campaigns.load.page import page

#: Where the figures and their page are kept.
FIGURES = Path("docs/evaluation/service/load.json")
REQUESTS = FIGURES.with_name("requests.json")
PAGE = Path("docs/evaluation/service.md")


def main() -> None:
    """Run it, or only make the page again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="of steady load, for memory")
    parser.add_argument(
        "--report", action="store_true", help="keep the figures, and make their page"
    )
    parser.add_argument("--again", action="store_true", help="make the page of the kept figures")
    arguments = parser.parse_args()
    if not arguments.again:
        with tempfile.TemporaryDirectory() as folder:
            figures = asyncio.run(campaign(Path(folder), Sizes(minutes=arguments.minutes)))
        print(json.dumps(figures, indent=1))
        if not arguments.report:
            return
        FIGURES.parent.mkdir(parents=True, exist_ok=True)
        FIGURES.write_text(json.dumps(figures, indent=1) + "\n")
    asked = json.loads(REQUESTS.read_text()) if REQUESTS.exists() else None
    PAGE.write_text(page(json.loads(FIGURES.read_text()), asked))


if __name__ == "__main__":
    main()
