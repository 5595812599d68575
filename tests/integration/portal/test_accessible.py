"""Every page, in every state, light and dark, wide and narrow: axe finds nothing, nothing sticks out."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.browser.axe import against_readers, axe_source
from tests.browser.driver import Browser, why_no_browser
from tests.browser.pages import (
    BROKEN,
    EMPTY,
    EVERY_WAY,
    STATES,
    break_record,
    pages,
    saved,
    write_all,
)
from tests.service.running import Running, served

pytestmark = [
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
    pytest.mark.xdist_group("browser"),
]

SCHEMES, WIDTHS = ("light", "dark"), (1280, 375)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    """Every kind of question, solved examples, and a campaign; one is answered while it is looked at."""
    state = tmp_path / "state"
    write_all(state)
    with served(state, EVERY_WAY, options=("--keys", str(state.parent / "keys"))) as running:
        yield running


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Nothing on record."""
    state = tmp_path_factory.mktemp("empty") / "state"
    with served(state, EVERY_WAY, options=("--keys", str(state.parent / "keys"))) as running:
        yield running


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A record that is not what was written."""
    state = tmp_path_factory.mktemp("broken") / "state"
    write_all(state)
    break_record(state)
    with served(state, EVERY_WAY, options=("--keys", str(state.parent / "keys"))) as running:
        yield running


@pytest.fixture
def looked_at(browser: Browser) -> Iterator[Browser]:
    yield browser
    browser.scheme("light")
    browser.resize(1280, 900)


@dataclass(frozen=True)
class Servers:
    """One a record."""

    full: Running
    empty: Running
    broken: Running


@pytest.fixture
def servers(server: Running, empty: Running, broken: Running) -> Servers:
    return Servers(server, empty, broken)


def opened(browser: Browser, of: Servers, place: Path) -> Iterator[str]:
    """Each page, one after the other."""
    browser.devtools("Network.clearBrowserCookies")
    browser.open(f"{of.empty.address}/portal/sign-in")
    yield "/portal/sign-in"
    for running, paths in ((of.empty, EMPTY), (of.broken, BROKEN), (of.full, pages(of.full))):
        browser.sign_in(running.address, running.key)
        for name, path in paths.items():
            browser.open(running.address + path)
            yield name
    browser.open(saved(of.full, "fix-cap", place).as_uri())
    yield "saved"
    for name, bring_up in STATES.items():
        browser.sign_in(of.full.address, of.full.key)
        bring_up(browser, of.full)
        yield name


@pytest.mark.registry("npm")
def test_axe_finds_nothing(looked_at: Browser, servers: Servers, tmp_path: Path) -> None:
    source = axe_source(tmp_path)
    found = []
    for name in opened(looked_at, servers, tmp_path):
        looked_at.run(source)
        for scheme in SCHEMES:
            looked_at.scheme(scheme)
            found += [f"{name} {scheme}: {one}" for one in against_readers(looked_at)]
    assert found == []


def test_nothing_sticks_out(looked_at: Browser, servers: Servers, tmp_path: Path) -> None:
    """What axe does not look at: nothing wider than the window, no word of a button broken."""
    found = []
    for name in opened(looked_at, servers, tmp_path):
        for width in WIDTHS:
            looked_at.resize(width, 800)
            found += [f"{name} {width}: {one}" for one in looked_at.check("layout.js")]
    assert found == []
