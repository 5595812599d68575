import io
import unittest
import zipfile

from app import top_level


def archive(*names):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        for name in names:
            file.writestr(name, b"")
    return data.getvalue()


class TopLevelTest(unittest.TestCase):
    def test_folders_are_implied(self):
        self.assertEqual(top_level(archive("a.txt", "b/c.txt")), ["a.txt", "b"])
