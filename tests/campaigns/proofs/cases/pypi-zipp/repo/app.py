"""The top level of an uploaded archive."""

import io

import zipp


def top_level(archive):
    return sorted(entry.name for entry in zipp.Path(io.BytesIO(archive)).iterdir())
