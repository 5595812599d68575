"""Validators and serialisers, all built before the first request.

Our models build theirs when they are first used, so that a short command pays for few. pydantic does not
promise that this is safe from several threads, which first requests at once would do.
"""

import gc
import warnings
from collections.abc import Iterator

from fastapi import FastAPI
from pydantic import BaseModel, TypeAdapter
from pydantic.warnings import UnsupportedFieldAttributeWarning


def build_routes(app: FastAPI) -> None:
    """FastAPI looks into the routers that it has been given when a request first comes past them, and makes
    their adapters then: one that nothing is for comes past all of them now."""
    nowhere = {"type": "http", "method": "GET", "path": "/nowhere", "root_path": "", "headers": []}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnsupportedFieldAttributeWarning)
        for route in app.router.routes:
            route.matches({**nowhere, "app": app})


def build_models() -> None:
    """Every model that is imported, and every adapter that there is: FastAPI's, one a route, and ours."""
    for model in set(_below(BaseModel)):
        if not model.__pydantic_complete__:
            model.model_rebuild(raise_errors=False)
    with warnings.catch_warnings():
        # FastAPI makes an adapter of each field that it describes: "exclude" means nothing there.
        warnings.simplefilter("ignore", UnsupportedFieldAttributeWarning)
        for adapter in unbuilt_adapters():
            adapter.rebuild(raise_errors=False)


def unbuilt_adapters() -> list[TypeAdapter[object]]:
    """Nobody keeps a list of them but the garbage collector."""
    every = [one for one in gc.get_objects() if isinstance(one, TypeAdapter)]
    return [adapter for adapter in every if not adapter.pydantic_complete]


def _below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for one in model.__subclasses__():
        yield one
        yield from _below(one)
