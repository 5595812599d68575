"""PYSEC-2020-155: a control character after many letters has a header matched in every way."""

import signal

from app import headers

signal.alarm(10)  # it ends the process: milliseconds without the flaw, for ever with it
print(headers(b"GET / HTTP/1.1\r\nX-Bad: " + b"x" * 100 + b"\x10\r\n\r\n"))
