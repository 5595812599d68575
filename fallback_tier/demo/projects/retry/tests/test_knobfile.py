import unittest

from knobfile import parse_settings, parse_value


class KnobfileTest(unittest.TestCase):
    def test_values(self):
        self.assertEqual(parse_value("['red', 12]"), ["red", 12])

    def test_settings(self):
        self.assertEqual(parse_settings("width = 12\nname = 'x'"), {"width": 12, "name": "x"})

    def test_code_is_refused(self):
        with self.assertRaises(ValueError):
            parse_value("__import__('os').getcwd()")


if __name__ == "__main__":
    unittest.main()
