"""Writes letters from a template."""

import jinja2


def letter(name):
    """A letter to somebody."""
    environment = jinja2.Environment(autoescape=True)
    return environment.from_string("Dear {{ name }},").render(name=name)
