"""A small OpenID Connect issuer on loopback: discovery, keys, codes with PKCE, signed ID tokens."""

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
from joserfc import jwt
from joserfc.jwk import RSAKey

from tests.fakes.serving import listening

CLIENT, SECRET = "fallback-tier", "not-a-real-secret"


@cache
def _key() -> RSAKey:
    """One for all issuers of a test process: finding its primes is most of what an issuer costs."""
    return RSAKey.generate_key(2048, auto_kid=True)


@dataclass
class Issuer:
    """``claims`` are put into the next ID tokens, over those that belong there."""

    address: str = ""
    claims: dict[str, Any] = field(default_factory=dict)
    key: RSAKey = field(default_factory=_key)
    signs_with: RSAKey | None = None
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def answer(self, path: str, asked: dict[str, str]) -> tuple[int, dict[str, Any] | str]:
        match path:
            case "/.well-known/openid-configuration":
                return 200, {
                    "issuer": self.address,
                    "authorization_endpoint": f"{self.address}/authorize",
                    "token_endpoint": f"{self.address}/token",
                    "jwks_uri": f"{self.address}/keys",
                    "id_token_signing_alg_values_supported": ["RS256"],
                }
            case "/keys":
                return 200, {"keys": [self.key.as_dict(private=False)]}
            case "/authorize":
                code = secrets.token_hex(8)
                self.codes[code] = asked
                back = urlencode({"code": code, "state": asked["state"]})
                return 302, f"{asked['redirect_uri']}?{back}"
            case "/token":
                return self._token(asked)
        return 404, {}

    def _token(self, asked: dict[str, str]) -> tuple[int, dict[str, Any]]:
        begun = self.codes.pop(asked["code"], None)
        digest = hashlib.sha256(asked.get("code_verifier", "").encode()).digest()
        proof = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if begun is None or begun["code_challenge"] != proof:
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            "iss": self.address,
            "sub": "1",
            "aud": CLIENT,
            "iat": now,
            "exp": now + 60,
            "nonce": begun["nonce"],
            "email": "ada@example.org",
            "groups": ["security"],
            **self.claims,
        }
        key = self.signs_with or self.key
        token = jwt.encode({"alg": "RS256", "kid": self.key.kid}, claims, key)
        return 200, {"access_token": "x", "token_type": "Bearer", "id_token": token}


def sent_back(address: str) -> str:
    """Where the issuer sends a browser that comes to its page. There is no TLS on loopback: reading the
    certificates that a client trusts, once for each way out, is a fifth of what signing in takes here."""
    answer = httpx2.get(address, verify=False, trust_env=False)
    return answer.headers["location"]


@contextmanager
def issuing() -> Iterator[Issuer]:
    issuer = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(self.path)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._answer(f"{self.path}?{body}")

        def _answer(self, path: str) -> None:
            parts = urlsplit(path)
            asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
            status, reported = issuer.answer(parts.path, asked)
            content = b"" if isinstance(reported, str) else json.dumps(reported).encode()
            self.send_response(status)
            if isinstance(reported, str):
                self.send_header("Location", reported)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            """Nobody reads it."""

    with listening(Handler) as issuer.address:
        yield issuer
