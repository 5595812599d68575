"""Pictures of every page of the portal: ``python -m tests.browser.pictures FOLDER [NAME ...]``.

Each page light and dark, wide and as on a phone, with the record that tests/service/portal.py writes; the
empty ones with nothing on record. What is new or changed is looked at before it is landed.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.browser.driver import Browser, chromium, why_no_browser
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

WIDTHS = {"wide": 1280, "phone": 375}


@dataclass(frozen=True)
class Album:
    """Pictures into ``out``; of these ``names`` alone, if there are any."""

    browser: Browser
    out: Path
    names: tuple[str, ...]

    def wants(self, *names: str) -> bool:
        """One of these at least?"""
        return not self.names or bool({*names} & {*self.names})

    def take(self, name: str, address: str | None = None) -> None:
        """One page, else the one that is open: both schemes, both widths."""
        if not self.wants(name):
            return
        if address is not None:
            self.browser.open(address)
        for scheme in ("light", "dark"):
            self.browser.scheme(scheme)
            for width, pixels in WIDTHS.items():
                self.browser.resize(pixels, 800)
                self.browser.picture(self.out / f"{name}-{scheme}-{width}.png", whole=True)

    def take_all(self, server: Running, of: dict[str, str]) -> None:
        """Each, with somebody signed in."""
        if self.wants(*of):
            self.browser.sign_in(server.address, server.key)
        for name, path in of.items():
            self.take(name, server.address + path)


@contextmanager
def _server(state: Path) -> Iterator[Running]:
    with served(
        state, EVERY_WAY, options=("--keys", str(state.parent / f"{state.name}-keys"))
    ) as running:
        yield running


def _full(album: Album, place: Path) -> None:
    write_all(place / "full")
    with _server(place / "full") as server:
        album.take("sign-in", f"{server.address}/portal/sign-in")
        album.take_all(server, pages(server))
        if album.wants("saved"):
            album.take("saved", saved(server, "fix-cap", place).as_uri())
        for name, bring_up in STATES.items():
            if album.wants(name):
                album.browser.sign_in(server.address, server.key)
                bring_up(album.browser, server)
                album.take(name)


def _empty(album: Album, place: Path) -> None:
    with _server(place / "empty") as server:
        album.take_all(server, EMPTY)


def _broken(album: Album, place: Path) -> None:
    write_all(place / "broken")
    break_record(place / "broken")
    with _server(place / "broken") as server:
        album.take_all(server, BROKEN)


def main() -> int:
    """Exit code 1: there is no browser."""
    if (reason := why_no_browser()) is not None:
        print(reason, file=sys.stderr)
        return 1
    folder, *names = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name, chromium(Path(name)) as browser:
        album = Album(browser, Path(folder), tuple(names))
        _full(album, Path(name))
        if album.wants(*EMPTY):
            _empty(album, Path(name))
        if album.wants(*BROKEN):
            _broken(album, Path(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
