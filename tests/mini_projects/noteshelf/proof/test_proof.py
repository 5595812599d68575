import sqlite3
import unittest

from noteshelf import add, notes_of, open_shelf


class ProofTest(unittest.TestCase):
    def setUp(self):
        self.shelf = open_shelf()
        self.addCleanup(self.shelf.close)
        add(self.shelf, "ada", "SECRET")

    def test_an_owner_is_a_value_not_sql(self):
        for owner in ("' OR '1'='1", "x' UNION SELECT text FROM notes --", "\\' OR 1=1 --"):
            with self.subTest(owner=owner):
                try:
                    found = notes_of(self.shelf, owner)
                except (sqlite3.Error, ValueError) as error:
                    self.fail(f"the owner was read as SQL: {error}")
                self.assertEqual(found, [])

    def test_a_name_with_an_apostrophe_has_its_notes(self):
        add(self.shelf, "O'Brien", "mine")
        self.assertEqual(notes_of(self.shelf, "O'Brien"), ["mine"])
        self.assertEqual(notes_of(self.shelf, "OBrien"), [])


if __name__ == "__main__":
    unittest.main()
