"""What the dispatcher starts: a guard, and under it the worker. Its argument: the fix's time limit (s)."""

import sys

from fallback_tier.workers.guard import keeping_imports, stand_guard


def main() -> None:
    """Returns in the worker alone, which then imports what it needs."""
    stand_guard(float(sys.argv[1]))
    with keeping_imports():
        from fallback_tier.service.worker.main import main as work

    work()


if __name__ == "__main__":
    main()
