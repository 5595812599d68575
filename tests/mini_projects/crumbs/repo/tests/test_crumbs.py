import unittest

from crumbs import bake, describe, taste

SESSION = {"user": "ada", "cart": [1, 2], "trial": False, "note": "café"}


class CrumbsTest(unittest.TestCase):
    def test_there_and_back(self):
        self.assertEqual(taste(bake(SESSION)), SESSION)

    def test_what_cannot_be_read_is_empty(self):
        for cookie in ("", "!!!", "AAAA", "bm90IGEgc2Vzc2lvbg=="):
            self.assertEqual(taste(cookie), {})

    def test_too_large(self):
        with self.assertRaises(ValueError):
            bake({"text": "x" * 5000})

    def test_described(self):
        self.assertEqual(describe(bake({"b": 1, "a": None})), '{"a": null, "b": 1}')


if __name__ == "__main__":
    unittest.main()
