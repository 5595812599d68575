"""A package registry of a test's own, on loopback: real npm and uv resolve against made-up packages.

``Universe`` says which packages there are; ``with serve(universe) as registry`` serves them and
``registry.environ`` turns every client to it.
"""

from tests.registry.server import Registry, Request, serve
from tests.registry.universe import Universe

__all__ = ["Registry", "Request", "Universe", "serve"]
