import unittest

from app import is_template


class IsTemplateTest(unittest.TestCase):
    def test_tags_must_end(self):
        self.assertTrue(is_template('<%def name="a()">x</%def>'))
        self.assertFalse(is_template('<%def name="a()">x'))
