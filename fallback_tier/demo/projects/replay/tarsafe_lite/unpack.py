"""Write the members of an archive below a folder."""

from pathlib import Path


def unpack(members, folder):
    """Write each (name, content) pair below ``folder``; return the paths written."""
    written = []
    for name, content in members:
        target = Path(folder) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        written.append(target)
    return written
