import unittest

from app import squares


class SquaresTest(unittest.TestCase):
    def test_numbers_are_squared(self):
        self.assertEqual(squares([1, 2, 3]), [1, 4, 9])
        self.assertEqual(squares([1, 2], "3 * n_jobs"), [1, 4])
