"""Letters from templates that customers write, so they are rendered in Jinja's sandbox."""

from jinja2 import Markup, contextfilter
from jinja2.sandbox import SandboxedEnvironment


@contextfilter
def each(context, values, call):
    """All values as a function makes them, one a line."""
    return Markup("<br>").join(str(call(value)) for value in values)


class Customer:
    def __init__(self, name):
        self.name = name
        self._password = "hunter2"


def letter(template, customers):
    environment = SandboxedEnvironment()
    environment.filters["each"] = each
    return environment.from_string(template).render(customers=customers)
