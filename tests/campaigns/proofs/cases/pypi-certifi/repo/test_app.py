import unittest

from app import authorities


class AuthoritiesTest(unittest.TestCase):
    def test_somebody_is_trusted(self):
        self.assertGreater(len(authorities()), 50)
