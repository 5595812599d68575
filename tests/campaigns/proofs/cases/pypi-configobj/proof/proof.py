"""GHSA-c33w-24p9-8m24 (CVE-2023-26112): for each opening bracket all that follows is tried anew."""

import signal

from app import fits

signal.alarm(10)  # it ends the process: milliseconds without the flaw, many minutes with it
print(fits("(" * 500_000, "1"))
