import random
import unittest
from unittest import mock

from resetmail import is_token, make_token

EMAIL = "ada@shop.example"


def guessed():
    """What an attacker computes who knows the time and the generator's state."""
    random.seed(1)
    with mock.patch("time.time", return_value=0.0), mock.patch("time.time_ns", return_value=0):
        return make_token(EMAIL)


class ProofTest(unittest.TestCase):
    def test_time_and_the_generator_do_not_decide(self):
        self.assertNotEqual(guessed(), guessed(), "the token can be computed by somebody else")

    def test_many_tokens_differ_at_the_same_state(self):
        self.assertEqual(len({guessed() for _ in range(200)}), 200)

    def test_the_form_stays(self):
        self.assertTrue(is_token(guessed()))


if __name__ == "__main__":
    unittest.main()
