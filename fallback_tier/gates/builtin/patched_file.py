"""Reading the patched files, for the gates that judge their content."""

from fallback_tier.gate_ports import GateContext
from fallback_tier.limits import MAX_FILE_BYTES


def patched_text(context: GateContext, path: str) -> str | None:
    """Return a changed file as the patch left it, with the line ends that git commits.

    None: a link, or not UTF-8 text of at most MAX_FILE_BYTES."""
    place = context.worktree.tree.find(path)
    if place is None or not place.is_file() or place.stat().st_size > MAX_FILE_BYTES:
        return None
    try:
        text = context.repo.as_committed(path, place.read_bytes()).decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
