import unittest

from app import element


class ElementTest(unittest.TestCase):
    def test_values_are_escaped(self):
        self.assertEqual(element({"title": '"'}), '<b title="&#34;">text</b>')
