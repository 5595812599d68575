"""An element with attributes that a user chose."""

from jinja2 import Environment

_ELEMENT = Environment(autoescape=True).from_string("<b{{ attributes|xmlattr }}>text</b>")


def element(attributes):
    return _ELEMENT.render(attributes=attributes)
