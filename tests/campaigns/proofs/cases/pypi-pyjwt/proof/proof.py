"""PYSEC-2022-202: a public key in OpenSSH's form serves as the secret of a forged HS256 token."""

import base64
import hashlib
import hmac
import json

import app
import jwt

PUBLIC = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"


def part(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=")


signed = b".".join(part(json.dumps(one).encode()) for one in ({"alg": "HS256"}, {"user": "root"}))
forged = b".".join([signed, part(hmac.new(PUBLIC, signed, hashlib.sha256).digest())]).decode()
if app.user(app.token("ada", "a shared secret"), "a shared secret") != "ada":
    raise SystemExit("tokens are broken")
try:
    who = app.user(forged, PUBLIC.decode())
except jwt.InvalidKeyError as error:
    print("refused:", error)
else:
    raise SystemExit(f"whoever knows the public key is {who}")
