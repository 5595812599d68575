"""GHSA-jfmj-5v4g-7637 (CVE-2024-5569): the parents of an entry named //x have no end."""

import resource
import signal

from app import top_level
from test_app import archive

resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))  # the parents are kept
signal.alarm(10)  # it ends the process
print(top_level(archive("//x")))
