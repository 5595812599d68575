import io
import unittest

import requests
from app import session, text


class Answering(requests.adapters.BaseAdapter):
    def send(self, request, **options):
        answer = requests.Response()
        answer.status_code, answer.url, answer.request = 200, request.url, request
        answer.raw = io.BytesIO(options["proxies"]["http"].encode())
        return answer

    def close(self):
        pass


class TextTest(unittest.TestCase):
    def test_the_proxy_is_used(self):
        through = session()
        through.mount("http://", Answering())
        self.assertIn("proxy.invalid", text(through, "http://example.invalid/"))
