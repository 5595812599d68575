"""Domain names as a resolver wants them."""

import idna


def ascii_name(name):
    return idna.encode(name).decode()
