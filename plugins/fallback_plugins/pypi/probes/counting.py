"""Has every pytest below a command say how many tests ended how, whatever else it prints."""

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from fallback_plugins.pypi.probes.observed import source_of

#: What pytest lists among its plugins.
_NAME = "fallback_tier_summary"


@contextmanager
def counting(cache: Path, variables: Mapping[str, str]) -> Iterator[tuple[dict[str, str], Path]]:
    """The environment with a pytest plugin on Python's path, and its folder, gone at the end.

    Found by its entry point: where the command resets the path, or pytest loads no plugins, it is not
    there and nothing breaks. A new name each time, so that no patch can have a module in its place.
    """
    module = f"summary_{secrets.token_hex(16)}"
    cache.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="counting-", dir=cache) as made:
        folder = Path(made)
        folder.chmod(0o755)  # the sandbox may run as another user
        (folder / f"{module}.py").write_text(source_of("summary_plugin"), encoding="utf-8")
        metadata = folder / f"{_NAME}-1.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: 1\n")
        (metadata / "entry_points.txt").write_text(f"[pytest11]\n{module} = {module}\n")
        path = os.pathsep.join(filter(None, (made, variables.get("PYTHONPATH"))))
        yield {**variables, "PYTHONPATH": path}, folder
