"""Pictures of every page of the portal: ``python -m tests.browser.pictures FOLDER [NAME ...]``.

Each page light and dark, wide and as on a phone, with the record that tests/service/portal.py writes; the
empty ones with nothing on record. What is new or changed is looked at before it is landed.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.browser.driver import Browser, chromium, why_no_browser
from tests.browser.pages import EMPTY, EVERY_WAY, pages
from tests.service.campaigns import write_campaign
from tests.service.portal import write_trails
from tests.service.running import Running, served

WIDTHS = {"wide": 1280, "phone": 375}


@contextmanager
def _server(state: Path) -> Iterator[Running]:
    with served(
        state, EVERY_WAY, options=("--keys", str(state.parent / f"{state.name}-keys"))
    ) as running:
        yield running


def take(browser: Browser, address: str, place: Path) -> None:
    """One page: both schemes, both widths."""
    browser.open(address)
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        for width, pixels in WIDTHS.items():
            browser.resize(pixels, 800)
            browser.picture(place.with_name(f"{place.name}-{scheme}-{width}.png"), whole=True)


def main() -> int:
    """Exit code 1: there is no browser."""
    if (reason := why_no_browser()) is not None:
        print(reason, file=sys.stderr)
        return 1
    folder, *names = sys.argv[1:]
    out = Path(folder)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        write_trails(place / "full")
        write_campaign(place / "full")
        with _server(place / "full") as full, chromium(place) as browser:
            if not names or "sign-in" in names:
                take(browser, f"{full.address}/portal/sign-in", out / "sign-in")
            browser.sign_in(full.address, full.key)
            for page, path in pages(full).items():
                if not names or page in names:
                    take(browser, full.address + path, out / page)
            wanted = {page: path for page, path in EMPTY.items() if not names or page in names}
            if wanted:
                with _server(place / "empty") as empty:
                    browser.sign_in(empty.address, empty.key)
                    for page, path in wanted.items():
                        take(browser, empty.address + path, out / page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
