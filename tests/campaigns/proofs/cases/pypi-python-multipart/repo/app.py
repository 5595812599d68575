"""What kind of form a request says that it has."""

from multipart.multipart import parse_options_header


def form_kind(header):
    return parse_options_header(header)[0].decode()
