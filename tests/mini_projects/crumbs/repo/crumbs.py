"""A visitor's session in a cookie."""

import base64
import binascii
import json
import pickle

MAX_COOKIE_CHARS = 4096


def bake(session):
    """The cookie's text. Raises ValueError where it would be too long."""
    cookie = base64.urlsafe_b64encode(pickle.dumps(session)).decode("ascii")
    if len(cookie) > MAX_COOKIE_CHARS:
        raise ValueError("the session is too large for a cookie")
    return cookie


def taste(cookie):
    """The session in a cookie; an empty one where it can't be read."""
    try:
        data = base64.urlsafe_b64decode(cookie)
        session = pickle.loads(data)
    except (binascii.Error, ValueError, EOFError, pickle.UnpicklingError):
        return {}
    return session if isinstance(session, dict) else {}


def describe(cookie):
    """The session in a cookie as readable text, for a log."""
    return json.dumps(taste(cookie), sort_keys=True)
