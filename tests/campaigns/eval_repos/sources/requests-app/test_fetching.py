import http.server
import threading
import unittest

import fetching


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"tea")

    def log_message(self, *_):
        pass


class FetchingTest(unittest.TestCase):
    def test_a_page_is_fetched(self):
        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        self.assertEqual(fetching.fetch(f"http://127.0.0.1:{server.server_port}/"), "tea")
        thread.join()
        server.server_close()


if __name__ == "__main__":
    unittest.main()
