"""Files of a folder, as an ASGI application."""

from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles


def application(folder):
    return Starlette(routes=[Mount("/static", StaticFiles(directory=folder))])
