import unittest

from knobfile import parse_list, parse_settings, parse_value


class KnobfileTest(unittest.TestCase):
    def test_list(self):
        self.assertEqual(parse_list("1, 'two'"), [1, "two"])

    def test_value(self):
        self.assertEqual(parse_value("['red', 12]"), ["red", 12])

    def test_settings(self):
        self.assertEqual(parse_settings("a = 12\nb = 'x=y'"), {"a": 12, "b": "x=y"})


if __name__ == "__main__":
    unittest.main()
