import unittest

from mailhead import head, header, names_in


class MailheadTest(unittest.TestCase):
    def test_a_header(self):
        self.assertEqual(header("Subject", "Hello: you"), "Subject: Hello: you\r\n")

    def test_a_bad_name(self):
        with self.assertRaises(ValueError):
            header("Sub ject", "x")

    def test_a_head(self):
        text = head("ada@shop.example", "bob@shop.example", "Your order")
        self.assertEqual(names_in(text), ["From", "To", "Subject"])
        self.assertTrue(text.endswith("\r\n\r\n"))

    def test_ordinary_characters_are_kept(self):
        self.assertEqual(
            header("Subject", "Café (50 % off) \\n"), "Subject: Café (50 % off) \\n\r\n"
        )


if __name__ == "__main__":
    unittest.main()
