"""Try every escape: ``python -m tests.campaigns.hostile.escapes FACTS.json [inside]``; outcomes as JSON."""

import json
import os
import signal
import sys
from pathlib import Path

from tests.campaigns.hostile.escapes import calls, files, network, power  # noqa: F401 (they enter themselves)
from tests.campaigns.hostile.escapes.base import ESCAPES, Escape, Facts

#: No escape takes a second; one that hangs has an outcome too.
PATIENCE_S = 20


def attempt(escape: Escape, facts: Facts) -> str:
    """``open``, ``shut``, or how the attempt's process ended instead."""
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE_S)
        code = 2
        try:
            escape(facts)
            code = 0
        except OSError:
            code = 1
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {0: "open", 1: "shut"}.get(status, f"ended with {status}")


if __name__ == "__main__":
    told = json.loads(Path(sys.argv[1]).read_text())
    told["inside"] = "inside" in sys.argv[2:]
    print(json.dumps({name: attempt(escape, told) for name, escape in ESCAPES.items()}))
