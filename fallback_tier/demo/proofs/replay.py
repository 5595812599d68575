"""The flaw itself: a member's name leads out of the folder that it is unpacked to."""

import contextlib
import tempfile
import unittest
from pathlib import Path

from tarsafe_lite.unpack import unpack


class OutsideTest(unittest.TestCase):
    def test_no_member_is_written_outside_the_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            with contextlib.suppress(ValueError):
                unpack([("../escaped.txt", b"x")], Path(folder) / "uploads")
            self.assertFalse((Path(folder) / "escaped.txt").exists(), "written outside")
