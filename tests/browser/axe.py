"""axe-core (github.com/dequelabs/axe-core), from the registry: what a page has against its readers."""

import subprocess
import tarfile
from pathlib import Path

from tests.browser.driver import Browser
from tests.waiting import PATIENCE_S

PACKAGE = "axe-core@4.14.1"

#: WCAG 2.2 to level AA, and what axe calls good practice.
_RUN = """
return axe.run(document, { resultTypes: ["violations"] }).then((found) => found.violations.flatMap(
  (one) => one.nodes.map((node) => one.id + " (" + one.impact + "): " + node.html.slice(0, 200)
    + " " + (node.any[0]?.message ?? node.all[0]?.message ?? ""))));
"""


def axe_source(place: Path) -> str:
    """Its script, checked by npm against the registry's digest; nothing of it is run outside a page."""
    subprocess.run(
        ["npm", "pack", "--silent", "--ignore-scripts", PACKAGE],
        cwd=place,
        check=True,
        timeout=PATIENCE_S,
        stdout=subprocess.DEVNULL,
    )
    (path,) = place.glob("axe-core-*.tgz")
    with tarfile.open(path) as archive:
        file = archive.extractfile("package/axe.min.js")
        assert file is not None
        return file.read().decode()


def against_readers(browser: Browser) -> list[str]:
    """Each violation on the page that is open, which has run ``axe_source``, with its element."""
    return list(browser.run(_RUN))
