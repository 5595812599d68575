import unittest

from mailhead import head, header

VALUES = (
    "Hi\r\nBcc: all@evil.example",
    "Hi\nBcc: all@evil.example",
    "Hi\rBcc: all@evil.example",
    "Hi\r\n\r\nanother body",
    "Hi\n\nanother body",
)


class ProofTest(unittest.TestCase):
    def test_a_value_stays_on_its_line(self):
        for value in VALUES:
            with self.subTest(value=value):
                try:
                    line = header("Subject", value)
                except ValueError:
                    continue
                self.assertTrue(line.endswith("\r\n"))
                self.assertNotIn("\r", line[:-2], "a header was added")
                self.assertNotIn("\n", line[:-2], "a header was added")

    def test_no_field_of_a_head_adds_another(self):
        for place in range(3):
            fields = ["a@shop.example", "b@shop.example", "Hi"]
            fields[place] += "\nBcc: all@evil.example"
            try:
                text = head(*fields)
            except ValueError:
                continue
            self.assertEqual(len(text.splitlines()), 4, "a header was added")


if __name__ == "__main__":
    unittest.main()
