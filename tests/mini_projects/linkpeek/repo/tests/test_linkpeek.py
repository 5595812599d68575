import unittest

from linkpeek import is_public, title_of

HOSTS = {
    "news.example": "93.184.216.34",
    "six.example": "2606:2800:220:1::1",
    "me.example": "127.0.0.1",
}


def resolve(host):
    if host not in HOSTS:
        raise OSError("unknown host")
    return HOSTS[host]


class LinkpeekTest(unittest.TestCase):
    def test_public_addresses(self):
        self.assertTrue(is_public("https://news.example/a", resolve))
        self.assertTrue(is_public("http://six.example:8080/", resolve))

    def test_loopback_is_not_public(self):
        self.assertFalse(is_public("http://me.example/", resolve))

    def test_other_schemes_and_unknown_hosts(self):
        self.assertFalse(is_public("ftp://news.example/", resolve))
        self.assertFalse(is_public("http://nowhere.example/", resolve))

    def test_title(self):
        page = "<html><TITLE> News </TITLE></html>"
        self.assertEqual(title_of("http://news.example/", lambda url: page, resolve), "News")
        self.assertIsNone(title_of("http://me.example/", lambda url: page, resolve))


if __name__ == "__main__":
    unittest.main()
