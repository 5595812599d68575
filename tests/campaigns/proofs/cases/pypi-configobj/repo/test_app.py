import unittest

from app import fits


class FitsTest(unittest.TestCase):
    def test_bounds_are_kept(self):
        self.assertTrue(fits("integer(0, 9)", "5"))
        self.assertFalse(fits("integer(0, 9)", "10"))
