import unittest

from app import application
from werkzeug.test import Client


class ApplicationTest(unittest.TestCase):
    def test_a_name_is_quoted(self):
        answer = Client(application).post("/", data={"name": "a b"})
        self.assertEqual(answer.get_data(as_text=True), "/found/a%20b")
