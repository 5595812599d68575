import unittest

from app import coloured


class ColouredTest(unittest.TestCase):
    def test_a_keyword_is_marked(self):
        self.assertIn('<span class="kr">val</span>', coloured("val x = 1", "sml"))
