"""GHSA-g7vv-2v7x-gj9p (CVE-2024-34062): quotes in a delimiter end its text, and the rest is code."""

import tempfile
from pathlib import Path

from app import record_count

with tempfile.TemporaryDirectory() as folder:
    mark = Path(folder, "injected")
    record_count(b"a;b;", f'" + str(open("{mark}", "w")) + "')
    if mark.exists():
        raise SystemExit("the delimiter ran as code")
