"""Every page, in every state, light and dark, wide and narrow: axe finds nothing, nothing sticks out."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.axe import against_readers, axe_source
from tests.browser.driver import Browser, why_no_browser
from tests.browser.pages import EMPTY, EVERY_WAY, pages
from tests.service.campaigns import write_campaign
from tests.service.portal import write_trails
from tests.service.running import Running, served

pytestmark = [
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
    pytest.mark.xdist_group("browser"),
]

SCHEMES, WIDTHS = ("light", "dark"), (1280, 375)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Every kind of question, and a campaign."""
    state = tmp_path_factory.mktemp("full") / "state"
    write_trails(state)
    write_campaign(state)
    with served(state, EVERY_WAY, options=("--keys", str(state.parent / "keys"))) as running:
        yield running


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Nothing on record."""
    state = tmp_path_factory.mktemp("empty") / "state"
    with served(state, EVERY_WAY, options=("--keys", str(state.parent / "keys"))) as running:
        yield running


@pytest.fixture
def looked_at(browser: Browser) -> Iterator[Browser]:
    yield browser
    browser.scheme("light")
    browser.resize(1280, 900)


def opened(browser: Browser, server: Running, empty: Running) -> Iterator[str]:
    """Each page, one after the other."""
    browser.devtools("Network.clearBrowserCookies")
    browser.open(f"{empty.address}/portal/sign-in")
    yield "/portal/sign-in"
    for of, paths in ((empty, EMPTY), (server, pages(server))):
        browser.sign_in(of.address, of.key)
        for name, path in paths.items():
            browser.open(of.address + path)
            yield name


@pytest.mark.registry("npm")
def test_axe_finds_nothing(
    looked_at: Browser, server: Running, empty: Running, tmp_path: Path
) -> None:
    source = axe_source(tmp_path)
    found = []
    for path in opened(looked_at, server, empty):
        for scheme in SCHEMES:
            looked_at.scheme(scheme)
            found += [f"{path} {scheme}: {one}" for one in against_readers(looked_at, source)]
    assert found == []


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_sticks_out(
    looked_at: Browser, server: Running, empty: Running, width: int
) -> None:
    """What axe does not look at: nothing wider than the window, no word of a button broken."""
    looked_at.resize(width, 800)
    found = []
    for path in opened(looked_at, server, empty):
        found += [f"{path}: {one}" for one in looked_at.check("layout.js")]
    assert found == []
