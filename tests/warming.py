"""What a process does once of which forks are made, so that none of them does it again: a quarter of what a
small ``fix`` took in a fork. Ours does it when it is first needed: a command of its own process pays for no
more than it needs, and what that comes to is tested there (``test_cli_startup``)."""

import gc
from collections.abc import Iterator
from functools import cache

from pydantic import BaseModel, TypeAdapter

from fallback_tier.patch.policy import forbidden_reason
from fallback_tier.prompt.redact import redact_secrets


def warm() -> None:
    """Whatever is imported by now: its models' validators, and the expressions that each fix compiles."""
    for model in set(_below(BaseModel)):
        if not model.__pydantic_complete__:
            model.model_rebuild(raise_errors=False)
    for adapter in [one for one in gc.get_objects() if isinstance(one, TypeAdapter)]:
        if not adapter.pydantic_complete:
            adapter.rebuild(raise_errors=False)
    forbidden_reason("app/app.py")
    redact_secrets("a text")


@cache
def warm_once() -> None:
    """For a test process, which forks children of its own."""
    warm()


def _below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for one in model.__subclasses__():
        yield one
        yield from _below(one)
