import unittest

import letters


class LettersTest(unittest.TestCase):
    def test_a_name_is_escaped(self):
        self.assertEqual(letters.letter("<you>"), "Dear &lt;you&gt;,")


if __name__ == "__main__":
    unittest.main()
