"""A file is written whole or not at all."""

import secrets
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Readers see what was there or all of this, also where several write it. Not synced: what must survive
    a power cut is the record's (``fallback_audit.files``). Raises OSError; then nothing of it is left."""
    partial = path.with_name(f".{path.name[:32]}.{secrets.token_hex(4)}.part")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
