"""What ``start_worker`` starts: a guard, and under it the worker. Arguments: the time limit (s), and the
worker's module, which has a ``main``."""

import sys
from importlib import import_module

from fallback_tier.workers.guard import keeping_imports, stand_guard


def main() -> None:
    """Return in the worker alone, which then imports what it needs."""
    stand_guard(float(sys.argv[1]))
    with keeping_imports():
        work = import_module(sys.argv[2]).main
    work()


if __name__ == "__main__":
    main()
