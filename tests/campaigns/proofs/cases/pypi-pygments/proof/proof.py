"""PYSEC-2021-140: the lexer for Standard ML waits for a name after `exception` for ever."""

import resource
import signal

from app import coloured

resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))  # the tokens of the loop are kept
signal.alarm(10)  # it ends the process
print(coloured("exception", "sml"))
