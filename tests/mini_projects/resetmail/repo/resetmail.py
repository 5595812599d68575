"""Links to reset a password."""

import hashlib
import random
import re
import time
from urllib.parse import urlencode

SITE = "https://shop.example/reset"
TOKEN = re.compile(r"[0-9a-f]{32}")


def make_token(email):
    """The secret part of a link: 32 hexadecimal digits, new each time."""
    seed = f"{email}{time.time()}{random.random()}"
    return hashlib.md5(seed.encode()).hexdigest()


def is_token(text):
    """Has this text the form of a token?"""
    return TOKEN.fullmatch(text) is not None


def reset_link(email):
    """The link that is mailed."""
    return f"{SITE}?{urlencode({'email': email, 'token': make_token(email)})}"
