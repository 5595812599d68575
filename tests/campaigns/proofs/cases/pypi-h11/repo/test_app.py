import unittest

from app import bodies

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


class BodiesTest(unittest.TestCase):
    def test_chunks_are_joined(self):
        self.assertEqual(bodies(HEAD + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"), b"abcde")
