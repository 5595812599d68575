"""GHSA-v973-fxgf-6xhp (CVE-2022-40023): quotes in a tag without an end are paired in every way."""

import signal

from app import is_template

signal.alarm(10)  # it ends the process: milliseconds without the flaw, for ever with it
print(is_template("<%a" + '""' * 200))
