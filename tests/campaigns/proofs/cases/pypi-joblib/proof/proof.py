"""GHSA-6hrg-qmvc-2xh8 (CVE-2022-21797): a configured pre_dispatch runs as code."""

import os

from app import squares

try:
    squares([1, 2], "__import__('os').environ.setdefault('INJECTED', '1')")
except Exception as error:
    print("refused:", repr(error)[:80])
if "INJECTED" in os.environ:
    raise SystemExit("the configuration ran as code")
