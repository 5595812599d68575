"""PYSEC-2024-60: each joiner in a label makes idna look through the whole label for letters that join."""

import signal

from app import ascii_name

signal.alarm(10)  # it ends the process: under a second without the flaw, many minutes with it
try:
    ascii_name("\u0628" + "a\u200c" * 100_000 + "\u0628")
except UnicodeError as error:
    print("refused:", str(error)[:60])
