import unittest

from linkpeek import is_public, title_of

INTERNAL = (
    "127.0.0.1", "10.0.0.5", "172.16.0.1", "172.31.255.254", "192.168.1.1",
    "169.254.169.254", "0.0.0.0", "100.64.0.1", "::1", "fe80::1%eth0", "fd00::1",
)  # fmt: skip


class ProofTest(unittest.TestCase):
    def test_no_address_of_an_internal_network_is_public(self):
        for address in INTERNAL:
            with self.subTest(address=address):
                self.assertFalse(is_public("http://host.example/", lambda host: address))

    def test_nothing_internal_is_fetched(self):
        def fetch(url):
            self.fail("the internal address was fetched")

        self.assertIsNone(title_of("http://host.example/", fetch, lambda host: "169.254.169.254"))

    def test_public_addresses_stay_public(self):
        for address in ("8.8.8.8", "172.15.0.1", "2606:4700::1111"):
            with self.subTest(address=address):
                self.assertTrue(is_public("http://host.example/", lambda host: address))


if __name__ == "__main__":
    unittest.main()
