import unittest

from resetmail import is_token, make_token, reset_link


class ResetmailTest(unittest.TestCase):
    def test_the_form_of_a_token(self):
        self.assertTrue(is_token(make_token("ada@shop.example")))
        self.assertFalse(is_token("123"))

    def test_each_token_is_new(self):
        tokens = {make_token("ada@shop.example") for _ in range(50)}
        self.assertEqual(len(tokens), 50)

    def test_the_link(self):
        link = reset_link("ada@shop.example")
        self.assertRegex(
            link, r"^https://shop\.example/reset\?email=ada%40shop\.example&token=[0-9a-f]{32}$"
        )


if __name__ == "__main__":
    unittest.main()
