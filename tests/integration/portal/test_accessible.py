"""Every page, in every state, light and dark, wide and narrow: axe finds nothing, nothing sticks out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.browser.axe import OF_COLOURS, against_readers, axe_source, with_axe
from tests.browser.driver import Browser, why_no_browser
from tests.browser.pages import (
    BROKEN,
    EMPTY,
    EVERY_WAY,
    STATES,
    break_record,
    is_like_another,
    is_of_its_own,
    pages,
    saved,
    write_all,
)
from tests.choice import a_choice
from tests.service.running import Running, served

pytestmark = [
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
    pytest.mark.xdist_group("browser"),
    pytest.mark.registry("npm"),
]

#: What axe is asked in each scheme: dark has other colours, and nothing else is other (``test_static``).
SCHEMES: dict[str, tuple[str, ...]] = {"dark": OF_COLOURS, "light": ()}

WIDTHS = (1280, 375)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Every kind of question, solved examples, and a campaign; one is answered while it is looked at."""
    state = tmp_path_factory.mktemp("full") / "state"
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


@dataclass(frozen=True)
class Servers:
    """One a record."""

    full: Running
    empty: Running
    broken: Running


@pytest.fixture(scope="module")
def servers(full: Running, empty: Running, broken: Running) -> Servers:
    return Servers(full, empty, broken)


def opened(
    browser: Browser, of: Servers, place: Path, is_wanted: Callable[[str], bool]
) -> Iterator[str]:
    """Each page that is wanted, one after the other."""
    browser.devtools("Network.clearBrowserCookies")
    if is_wanted("sign-in"):
        browser.open(f"{of.empty.address}/portal/sign-in")
        yield "sign-in"
    for running, paths in ((of.empty, EMPTY), (of.broken, BROKEN), (of.full, pages(of.full))):
        browser.sign_in(running.address, running.key)
        for name, path in paths.items():
            if is_wanted(name):
                browser.open(running.address + path)
                yield name
    if is_wanted("saved"):
        browser.open(saved(of.full, "fix-cap", place).as_uri())
        yield "saved"
    for name, bring_up in STATES.items():
        if is_wanted(name):
            browser.sign_in(of.full.address, of.full.key)
            bring_up(browser, of.full)
            yield name


@dataclass
class Found:
    """What is wrong with any page."""

    by_axe: list[str] = field(default_factory=list)
    sticking_out: list[str] = field(default_factory=list)


@pytest.fixture(
    scope="module",
    params=a_choice([(is_of_its_own,), (is_like_another,)], step=2),
    ids=["one of each kind", "the others"],
)
def found(
    driver: Browser,
    servers: Servers,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Found:
    """One walk over all of them: opening them is half of the work."""
    place, found = tmp_path_factory.mktemp("pages"), Found()
    with with_axe(driver, axe_source(place)):
        for name in opened(driver, servers, place, request.param):
            for scheme, rules in SCHEMES.items():
                driver.scheme(scheme)
                found.by_axe += [
                    f"{name} {scheme}: {one}" for one in against_readers(driver, rules)
                ]
            for width in WIDTHS:
                driver.resize(width, 800)
                found.sticking_out += [f"{name} {width}: {it}" for it in driver.check("layout.js")]
            driver.resize(1280, 900)
    return found


def test_axe_finds_nothing(found: Found) -> None:
    assert found.by_axe == []


def test_nothing_sticks_out(found: Found) -> None:
    """What axe does not look at: nothing wider than the window, no word of a button broken."""
    assert found.sticking_out == []
