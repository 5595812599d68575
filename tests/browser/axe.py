"""axe-core (github.com/dequelabs/axe-core), from the registry: what a page has against its readers."""

import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.browser.driver import Browser
from tests.waiting import PATIENCE_S

PACKAGE = "axe-core@4.14.1"

#: WCAG 2.2 to level AA, and what axe calls good practice; or some of its rules.
_RUN = """
const some = arguments[0].length ? { runOnly: { type: "rule", values: arguments[0] } } : {};
return axe.run(document, { resultTypes: ["violations"], ...some }).then((found) => found.violations.flatMap(
  (one) => one.nodes.map((node) => one.id + " (" + one.impact + "): " + node.html.slice(0, 200)
    + " " + (node.any[0]?.message ?? node.all[0]?.message ?? ""))));
"""

#: All that axe has about colours.
OF_COLOURS = ("color-contrast", "link-in-text-block")


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


@contextmanager
def with_axe(browser: Browser, source: str) -> Iterator[None]:
    """Each page that is opened has ``axe``: half a megabyte is sent once, not once a page."""
    added = browser.devtools("Page.addScriptToEvaluateOnNewDocument", source=source)
    yield
    browser.devtools("Page.removeScriptToEvaluateOnNewDocument", **added)


def against_readers(browser: Browser, rules: tuple[str, ...] = ()) -> list[str]:
    """Each violation on the page that is open, which has ``axe``, with its element; ``rules``: those
    alone."""
    return list(browser.run(_RUN, rules))
