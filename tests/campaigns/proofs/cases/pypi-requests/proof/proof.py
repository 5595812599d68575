"""PYSEC-2023-74: what is sent through the tunnel after a redirect has the proxy's credentials in it."""

import io

import requests
from app import session, text

sent = []


class Redirecting(requests.adapters.BaseAdapter):
    """Stands in for the network: a redirect first, then an answer."""

    def send(self, request, **_options):
        sent.append(dict(request.headers))
        answer = requests.Response()
        answer.url, answer.request, answer.raw = request.url, request, io.BytesIO(b"there")
        answer.status_code = 302 if len(sent) == 1 else 200
        answer.headers["Location"] = "https://destination.invalid/"
        return answer

    def close(self):
        pass


through = session()
through.mount("https://", Redirecting())
if text(through, "https://start.invalid/") != "there" or len(sent) != 2:
    raise SystemExit("the redirect was not followed")
if "Proxy-Authorization" in sent[1]:
    raise SystemExit("the destination is told the proxy's password")
