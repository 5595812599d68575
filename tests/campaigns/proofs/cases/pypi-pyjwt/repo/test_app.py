import unittest

import jwt
from app import token, user


class TokenTest(unittest.TestCase):
    def test_a_token_names_its_user(self):
        self.assertEqual(user(token("ada", "a shared secret"), "a shared secret"), "ada")

    def test_another_key_is_refused(self):
        with self.assertRaises(jwt.InvalidSignatureError):
            user(token("ada", "a shared secret"), "another")
