import io
import tempfile
import unittest
import zipfile
from pathlib import Path

from unboxer import unbox


def box(files):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    data.seek(0)
    return data


class UnboxerTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.uploads = Path(folder.name) / "uploads"
        self.uploads.mkdir()

    def test_files_are_written(self):
        names = unbox(box({"a.txt": "1", "b/c.txt": "2"}), str(self.uploads))
        self.assertEqual(names, ["a.txt", "b/c.txt"])
        self.assertEqual((self.uploads / "b" / "c.txt").read_text(), "2")

    def test_two_dots_inside_a_name_are_fine(self):
        unbox(box({"v1..2/notes..txt": "x"}), str(self.uploads))
        self.assertTrue((self.uploads / "v1..2" / "notes..txt").exists())

    def test_what_is_too_large_is_left_out(self):
        self.assertEqual(unbox(box({"big": "x" * 1_000_001, "a": ""}), str(self.uploads)), ["a"])


if __name__ == "__main__":
    unittest.main()
