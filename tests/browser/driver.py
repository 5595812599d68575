"""Chromium for tests: started headless, asked over WebDriver (https://www.w3.org/TR/webdriver2/)."""

import base64
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.ports import free_port
from tests.waiting import PATIENCE_S

#: Debian's packages bring both: `apt-get install chromium chromium-driver`.
PACKAGES = "chromium chromium-driver"

_OPTIONS = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-device-scale-factor=1",
)

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"

#: As WebDriver spells them.
ENTER, ESCAPE, TAB, SHIFT = "\ue007", "\ue00c", "\ue004", "\ue008"


def why_no_browser() -> str | None:
    """The reason to skip a test; None: there is one."""
    for name in ("chromium", "chromedriver"):
        if shutil.which(name) is None:
            return f"needs {name} on PATH (Debian: apt-get install {PACKAGES})"
    return None


@dataclass
class Browser:
    """One window of a running Chromium."""

    client: httpx2.Client
    session: str
    #: Keys that were pressed, those of written text apart.
    pressed: int = 0

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        sent = None if method == "GET" else (body or {})
        answer = self.client.request(method, f"/session/{self.session}{path}", json=sent)
        value = answer.json()["value"]
        if answer.status_code != 200:
            raise AssertionError(f"{method} {path}: {value['error']}: {value['message'][:500]}")
        return value

    def open(self, address: str) -> None:
        self._ask("POST", "/url", {"url": address})

    @property
    def address(self) -> str:
        return str(self._ask("GET", "/url"))

    @property
    def title(self) -> str:
        return str(self._ask("GET", "/title"))

    def run(self, script: str, *arguments: Any) -> Any:
        """JavaScript in the page, as WebDriver runs it: outside of the page's own policy."""
        body = {"script": script, "args": list(arguments)}
        return self._ask("POST", "/execute/sync", body)

    def press(self, *keys: str) -> None:
        """Keys, one after the other, to whatever has the focus."""
        actions = []
        for key in keys:
            actions += [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        source = {"type": "key", "id": "keyboard", "actions": actions}
        self._ask("POST", "/actions", {"actions": [source]})
        self.pressed += len(keys)

    def write(self, text: str) -> None:
        self.press(*text)
        self.pressed -= len(text)

    def resize(self, width: int, height: int) -> None:
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def scheme(self, name: str) -> None:
        """``light`` or ``dark``, without a transition: what is looked at is the one or the other."""
        features = [
            {"name": "prefers-color-scheme", "value": name},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.devtools("Emulation.setEmulatedMedia", features=features)

    def devtools(self, command: str, **parameters: Any) -> Any:
        body = {"cmd": command, "params": parameters}
        return self._ask("POST", "/goog/cdp/execute", body)

    def picture(self, place: Path, *, whole: bool = False) -> None:
        made = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(base64.b64decode(made["data"]))

    def text(self, selector: str = "main") -> str:
        return str(self.run("return document.querySelector(arguments[0]).innerText", selector))

    def check(self, name: str) -> Any:
        """What one of the scripts beside this file says of the page."""
        return self.run((Path(__file__).parent / name).read_text())

    def count(self, selector: str) -> int:
        return int(self.run("return document.querySelectorAll(arguments[0]).length", selector))

    def until(self, script: str, *arguments: Any) -> Any:
        """What the script gives as soon as that says something."""
        end = time.monotonic() + PATIENCE_S
        while not (found := self.run(script, *arguments)):
            if time.monotonic() > end:
                raise TimeoutError(f"{script} at {self.address}: {self.text('body')[:500]}")
            time.sleep(0.02)
        return found

    def log(self) -> list[dict[str, Any]]:
        """What the console was told since it was last asked, errors of the policy among it."""
        return list(self._ask("POST", "/se/log", {"type": "browser"}))

    def sign_in(self, address: str, key: str) -> None:
        """As a person does."""
        self.open(f"{address}/portal/sign-in")
        if not self.address.endswith("sign-in"):
            return  # the session is still there
        self.run("document.querySelector('.sign-in details')?.setAttribute('open', '')")
        self.run("document.getElementById('key').focus()")
        self.write(key)
        self.press(ENTER)
        self.until("return !location.pathname.endsWith('sign-in')")


@contextmanager
def chromium(place: Path) -> Iterator[Browser]:
    """A browser of its own, its profile below ``place``; both programs end with it."""
    port = free_port()
    (place / "home").mkdir(parents=True, exist_ok=True)
    # Chromium makes a socket in a folder of its temporary one, and its path has 108 bytes at most.
    temporary = tempfile.mkdtemp(prefix="b-")
    env = {"PATH": os.environ["PATH"], "HOME": str(place / "home"), "TMPDIR": temporary}
    with (place / "chromedriver.log").open("wb") as log:
        process = subprocess.Popen(
            ["chromedriver", f"--port={port}"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=env,
        )
    try:
        with httpx2.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S, trust_env=False
        ) as client:
            _wait(client, process)
            browser = Browser(client, _session(client, place))
            try:
                yield browser
            finally:
                client.delete(f"/session/{browser.session}")
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        shutil.rmtree(temporary, ignore_errors=True)


def _session(client: httpx2.Client, place: Path) -> str:
    root = ("--no-sandbox",) if os.getuid() == 0 else ()
    arguments = [*_OPTIONS, *root, f"--user-data-dir={place / 'profile'}"]
    always = {
        "browserName": "chrome",
        "goog:chromeOptions": {"args": arguments},
        "goog:loggingPrefs": {"browser": "ALL"},
        "unhandledPromptBehavior": "ignore",
    }
    answer = client.post("/session", json={"capabilities": {"alwaysMatch": always}})
    value = answer.json()["value"]
    assert answer.status_code == 200, value
    return str(value["sessionId"])


def _wait(client: httpx2.Client, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            if client.get("/status").json()["value"]["ready"]:
                return
        except httpx2.TransportError:
            if process.poll() is not None or time.monotonic() > end:
                raise
        time.sleep(0.02)
