import base64
import os
import pickle
import tempfile
import unittest
from pathlib import Path

from crumbs import bake, taste


class Attack:
    def __init__(self, run, *args):
        self.run, self.args = run, args

    def __reduce__(self):
        return self.run, self.args


class ProofTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.pwned = Path(folder.name) / "pwned"

    def attack(self, attack):
        for protocol in (0, 2, pickle.HIGHEST_PROTOCOL):
            for wrapped in (attack, {"user": attack}):
                data = pickle.dumps(wrapped, protocol)
                cookie = base64.urlsafe_b64encode(data).decode("ascii")
                try:
                    session = taste(cookie)
                except Exception:  # refusing it loudly runs nothing either
                    session = {}
                self.assertEqual(session, {}, "a pickle was read as a session")
                self.assertFalse(self.pwned.exists(), "code in the cookie was run")

    def test_no_command_of_a_cookie_is_run(self):
        self.attack(Attack(os.system, f"touch {self.pwned}"))

    def test_no_function_of_a_cookie_is_called(self):
        self.attack(Attack(os.mkdir, str(self.pwned)))

    def test_builtins_are_functions_too(self):
        self.attack(Attack(eval, f"open({str(self.pwned)!r}, 'w')"))

    def test_sessions_still_work(self):
        session = {"a": [1, None, {"b": "c"}], "é": 0.5}
        self.assertEqual(taste(bake(session)), session)


if __name__ == "__main__":
    unittest.main()
