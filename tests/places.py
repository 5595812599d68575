"""Where tests put files."""

from pathlib import Path


def fast_place() -> Path | None:
    """Memory, where there is a folder of it: what a sync is worth is tested elsewhere."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else None
