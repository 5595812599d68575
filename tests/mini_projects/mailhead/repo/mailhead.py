"""Heads of mails, as text."""

CRLF = "\r\n"
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")


def check_name(name):
    """Raises ValueError where this is no header's name."""
    if not name or not NAME_CHARACTERS.issuperset(name):
        raise ValueError(f"{name!r} is not the name of a header")


def header(name, value):
    """One header. Raises ValueError where it can't be one."""
    check_name(name)
    return f"{name}: {value}{CRLF}"


def head(sender, recipient, subject):
    """The head of a mail, with the empty line that ends it."""
    fields = {"From": sender, "To": recipient, "Subject": subject}
    return "".join(header(name, value) for name, value in fields.items()) + CRLF


def names_in(text):
    """The names of the headers in a head, in order."""
    return [line.partition(":")[0] for line in text.split(CRLF) if line]
