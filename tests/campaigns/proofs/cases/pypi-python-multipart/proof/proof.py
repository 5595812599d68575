"""GHSA-2jv5-9r88-3w3p (CVE-2024-24762): back slashes in an option's value are matched in every way."""

import signal

from app import form_kind

signal.alarm(10)  # it ends the process: milliseconds without the flaw, for ever with it
print(form_kind('application/x-www-form-urlencoded; !="' + "\\" * 100 + "x"))
