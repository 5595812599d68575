"""Previews of links that users post."""

import ipaddress
import re
import socket
from urllib.parse import urlsplit

TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL | re.IGNORECASE)


def parse_address(text):
    """An IP address object; IPv6 zones are left out."""
    return ipaddress.ip_address(text.split("%")[0])


def is_public(url, resolve=socket.gethostbyname):
    """May the server fetch this address for a user?"""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return False
    try:
        address = parse_address(resolve(parts.hostname))
    except (OSError, ValueError):
        return False
    return not address.is_loopback


def title_of(url, fetch, resolve=socket.gethostbyname):
    """The title of a page; None where it has none or may not be fetched."""
    if not is_public(url, resolve):
        return None
    found = TITLE.search(fetch(url))
    return found[1].strip() if found else None
