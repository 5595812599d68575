"""Pictures in the documentation: each is there, is shown by a page, and is small."""

import re
import struct
from pathlib import Path

from tests.browser.doc_pictures import OUT, PICTURES, WIDTH
from tests.unit.test_layout import ROOT, committed

#: A checkout carries every version of each.
MAX_BYTES = 150_000


def shown() -> set[Path]:
    """Every picture that a page names."""
    pages = [ROOT / path for path in committed() if path.endswith(".md")]
    return {
        (page.parent / name).resolve()
        for page in pages
        for name in re.findall(r"!\[[^\]]+\]\(([^)#]+)\)", page.read_text())
        if "://" not in name
    }


def test_every_picture_that_a_page_shows_is_there() -> None:
    assert [path for path in shown() if not path.is_file()] == []


def test_every_picture_of_the_script_is_shown_and_small() -> None:
    made = {OUT / f"{name}.png" for name in PICTURES}
    assert {*OUT.glob("*.png")} == made <= shown()
    for path in made:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG\r\n"), path
        width, height = struct.unpack(">II", content[16:24])
        assert (width, height) == (WIDTH, PICTURES[path.stem].height), path
        assert len(content) < MAX_BYTES, path
