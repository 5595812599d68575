"""GHSA-v5gw-mw7f-84px (CVE-2023-29159): beside static/, the folder static-private/ is served too."""

import tempfile
from pathlib import Path

from app import application
from test_app import ask

with tempfile.TemporaryDirectory() as root:
    for name in ("static", "static-private"):
        Path(root, name).mkdir()
    Path(root, "static-private", "key.txt").write_text("secret")
    status, body = ask(application(Path(root, "static")), "/static/../static-private/key.txt")
if status != 404 or body == b"secret":
    raise SystemExit(f"a file of another folder was served: {body!r}")
