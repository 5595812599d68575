import unittest

from app import Customer, letter


class LetterTest(unittest.TestCase):
    def test_names_one_a_line(self):
        template = "{{ customers|map(attribute='name')|each('Dear {}'.format) }}"
        self.assertEqual(letter(template, [Customer("A"), Customer("B")]), "Dear A<br>Dear B")
