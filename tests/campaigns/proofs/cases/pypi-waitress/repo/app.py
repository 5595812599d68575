"""The headers of a request's head."""

from waitress.adjustments import Adjustments
from waitress.parser import HTTPRequestParser


def headers(head):
    parser = HTTPRequestParser(Adjustments())
    parser.received(head)
    return None if parser.error else parser.headers
