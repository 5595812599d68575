import unittest

from app import language_name


class LanguageNameTest(unittest.TestCase):
    def test_a_language_has_a_name(self):
        self.assertEqual(language_name("it"), "italiano")
        self.assertEqual(language_name("xx"), "unknown")
