import pickle
import unittest

from app import is_safe


class IsSafeTest(unittest.TestCase):
    def test_plain_data_is_safe(self):
        self.assertTrue(is_safe(pickle.dumps({"weights": [1, 2]})))

    def test_eval_is_not(self):
        self.assertFalse(is_safe(b"c__builtin__\neval\n(S'1'\ntR."))
