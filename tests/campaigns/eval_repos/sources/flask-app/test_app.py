import unittest

from app import app


class AppTest(unittest.TestCase):
    def test_a_name_is_escaped(self):
        answer = app.test_client().get("/hello/<you>")
        self.assertEqual(answer.status_code, 200)
        self.assertEqual(answer.data, b"Hello, &lt;you&gt;!")


if __name__ == "__main__":
    unittest.main()
