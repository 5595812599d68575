import unittest

from app import record_count


class RecordCountTest(unittest.TestCase):
    def test_records_are_counted(self):
        self.assertEqual(record_count(b"a;b;c;", ";"), 3)
