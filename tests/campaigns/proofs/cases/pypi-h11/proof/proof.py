"""GHSA-vqfr-h8mv-ghfj (CVE-2025-43859): two bytes that are no line end pass as one after a chunk."""

import h11
from app import bodies
from test_app import HEAD

try:
    read = bodies(HEAD + b"3\r\nabcXX2\r\nde\r\n0\r\n\r\n")
except h11.RemoteProtocolError as error:
    print("refused:", error)
else:
    raise SystemExit(f"a malformed body was read: {read!r}")
