import unittest

from noteshelf import add, count, notes_of, open_shelf


class NoteshelfTest(unittest.TestCase):
    def setUp(self):
        self.shelf = open_shelf()
        self.addCleanup(self.shelf.close)
        add(self.shelf, "ada", "first")
        add(self.shelf, "bob", "other")
        add(self.shelf, "ada", "second")

    def test_own_notes_in_order(self):
        self.assertEqual(notes_of(self.shelf, "ada"), ["first", "second"])

    def test_nobody_has_none(self):
        self.assertEqual(notes_of(self.shelf, "eve"), [])

    def test_count(self):
        self.assertEqual(count(self.shelf), 3)


if __name__ == "__main__":
    unittest.main()
