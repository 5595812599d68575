"""The pictures of docs/portal.md: ``python -m tests.browser.doc_pictures``.

Of ``serve --demo``, as a browser shows it. They are made anew where a page has changed so that a reader
would see it; tests/unit/test_doc_pictures.py holds that each is there, is shown, and is small.
"""

import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.browser.driver import chromium, why_no_browser
from tests.service.running import served

OUT = Path(__file__).parents[2] / "docs" / "portal"

WIDTH = 1280


class Picture(NamedTuple):
    """A page, how high a window shows it, and in which scheme."""

    path: str
    height: int
    scheme: str


PICTURES = {
    "queue": Picture("/portal/queue", 540, "dark"),
    "decide": Picture("/portal/fixes/demo-settings-service/triage", 1060, "light"),
    "overview": Picture("/portal/", 960, "light"),
}


def main() -> int:
    """Exit code 1: there is no browser."""
    if (reason := why_no_browser()) is not None:
        print(reason, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        options = ("--demo", "--keys", str(place / "keys"))
        with served(place / "state", options=options) as server, chromium(place) as browser:
            browser.sign_in(server.address, server.key)
            browser.devtools("Emulation.setScrollbarsHidden", hidden=True)
            for name, picture in PICTURES.items():
                browser.scheme(picture.scheme)
                browser.resize(WIDTH, picture.height)
                browser.open(server.address + picture.path)
                browser.picture(OUT / f"{name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
