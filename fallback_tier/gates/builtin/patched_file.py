"""Reading the patched files, for the gates that judge their content."""

from fallback_tier.gate_ports import GateContext
from fallback_tier.limits import MAX_FILE_BYTES


def patched_text(context: GateContext, path: str) -> str | None:
    """A changed file as the patch left it; None: no UTF-8 text of at most MAX_FILE_BYTES, or a link."""
    place = context.worktree.tree.find(path)
    if place is None or not place.is_file() or place.stat().st_size > MAX_FILE_BYTES:
        return None
    try:
        text = place.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
