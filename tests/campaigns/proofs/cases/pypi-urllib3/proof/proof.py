"""PYSEC-2023-192: a redirect to another host takes the Cookie header with it."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from app import page


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        port = self.server.server_port
        if self.headers["Host"] == f"127.0.0.1:{port}":
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.2:{port}/")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            body = f"seen: {self.headers['Cookie']}".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_):
        pass


server = HTTPServer(("0.0.0.0", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
found = page(f"http://127.0.0.1:{server.server_port}/", "7")
if found != "seen: None":
    raise SystemExit(f"the other host: {found}")
