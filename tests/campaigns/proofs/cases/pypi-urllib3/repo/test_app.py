import threading
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer

from app import page


class Echo(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.headers["Cookie"].encode())

    def log_message(self, *_):
        pass


class PageTest(unittest.TestCase):
    def test_the_session_is_sent(self):
        server = HTTPServer(("127.0.0.1", 0), Echo)
        self.addCleanup(server.server_close)
        threading.Thread(target=server.handle_request, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        self.assertEqual(page(url, "7"), "session=7")
