import unittest

from app import form_kind


class FormKindTest(unittest.TestCase):
    def test_options_are_left_out(self):
        self.assertEqual(form_kind('multipart/form-data; boundary="b"'), "multipart/form-data")
