import unittest

from app import headers


class HeadersTest(unittest.TestCase):
    def test_headers_are_read(self):
        read = headers(b"GET / HTTP/1.1\r\nX-Colour: red\r\n\r\n")
        self.assertEqual(read["X_COLOUR"], "red")
