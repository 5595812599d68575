import unittest

from app import app


class PagesTest(unittest.TestCase):
    def test_a_session_is_kept(self):
        client = app.test_client()
        self.assertIn("Set-Cookie", client.get("/in").headers)
        self.assertEqual(client.get("/news").text, "news")
