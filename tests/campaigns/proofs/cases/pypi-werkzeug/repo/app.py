"""A form that answers with a link to what was sent."""

from werkzeug.urls import url_quote
from werkzeug.wrappers import Request, Response


class Bounded(Request):
    max_form_memory_size = 100_000


@Bounded.application
def application(request):
    return Response("/found/" + url_quote(request.form.get("name", "")))
