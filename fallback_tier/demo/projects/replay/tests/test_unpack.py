import tempfile
import unittest
from pathlib import Path

from tarsafe_lite.unpack import unpack


class UnpackTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.inside = self.root / "uploads"

    def test_writes_members_below_the_folder(self):
        unpack([("a/b.txt", b"hello")], self.inside)
        self.assertEqual((self.inside / "a" / "b.txt").read_bytes(), b"hello")

    def test_returns_what_was_written(self):
        self.assertEqual(unpack([("a", b"")], self.inside), [self.inside / "a"])

    def test_a_name_with_dots_is_fine(self):
        unpack([("v1..2/notes.txt", b"x")], self.inside)
        self.assertTrue((self.inside / "v1..2" / "notes.txt").exists())


if __name__ == "__main__":
    unittest.main()
