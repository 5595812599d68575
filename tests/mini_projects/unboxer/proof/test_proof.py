import io
import tempfile
import unittest
import zipfile
from pathlib import Path

from unboxer import unbox


class ProofTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.uploads = self.root / "uploads"
        self.uploads.mkdir()

    def unbox(self, name):
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as archive:
            archive.writestr(name, "pwned")
            archive.writestr("fine.txt", "fine")
        data.seek(0)
        try:
            unbox(data, str(self.uploads))
        except Exception:  # refusing the whole archive is right too
            pass

    def assert_nothing_outside(self):
        outside = [
            path
            for path in self.root.rglob("*")
            if path.is_file() and not path.is_relative_to(self.uploads)
        ]
        self.assertEqual(outside, [], "a file was written outside the folder")

    def test_dots_do_not_leave_the_folder(self):
        for name in ("../pwned", "a/../../pwned", "a/b/../../../pwned", "....//../../pwned"):
            self.unbox(name)
            self.assert_nothing_outside()

    def test_an_absolute_name_does_not_leave_the_folder(self):
        self.unbox(str(self.root / "pwned"))
        self.assert_nothing_outside()

    def test_a_neighbour_whose_name_begins_alike_is_outside(self):
        self.unbox("../uploads-of-others/pwned")
        self.assert_nothing_outside()


if __name__ == "__main__":
    unittest.main()
