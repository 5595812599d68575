"""The flaw itself: a value of a settings file is run as code."""

import contextlib
import os
import unittest

from knobfile import parse_settings


class NoCodeTest(unittest.TestCase):
    def test_a_value_is_not_run(self):
        with contextlib.suppress(Exception):
            parse_settings("a = __import__('os').environ.setdefault('RAN', 'yes')")
        self.assertNotIn("RAN", os.environ, "the value was run")
