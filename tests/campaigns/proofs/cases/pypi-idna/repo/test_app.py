import unittest

from app import ascii_name


class AsciiNameTest(unittest.TestCase):
    def test_a_name_is_encoded(self):
        self.assertEqual(ascii_name("bücher.example"), "xn--bcher-kva.example")
