"""What a process does once of which forks are made, so that none of them does it again: a quarter of what a
small ``fix`` took in a fork. Ours does it when it is first needed: a command of its own process pays for no
more than it needs, and what that comes to is tested there (``test_cli_startup``)."""

import gc
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, TypeAdapter

from fallback_plugins.shared.gates.base_runs import _kept_form
from fallback_tier.answers.blocks import plan_schema
from fallback_tier.ecosystem_rules import ECOSYSTEMS_GROUP
from fallback_tier.entry_points import mounted
from fallback_tier.installed_plugins import GATES_GROUP
from fallback_tier.patch.policy import forbidden_reason
from fallback_tier.prompt.redact import redact_secrets
from fallback_tier.prompt.render import _compile


def warm() -> None:
    """Whatever is imported by now: its models' validators; and what each fix compiles, or asks of what is
    installed here."""
    for model in set(_below(BaseModel)):
        if not model.__pydantic_complete__:
            model.model_rebuild(raise_errors=False)
    for adapter in [one for one in gc.get_objects() if isinstance(one, TypeAdapter)]:
        if not adapter.pydantic_complete:
            adapter.rebuild(raise_errors=False)
    forbidden_reason("app/app.py")
    redact_secrets("a text")
    for group in (ECOSYSTEMS_GROUP, GATES_GROUP):
        mounted(group)
    for declaring in (False, True):
        plan_schema(declaring=declaring)
    for plugin in ("npm", "pypi"):
        skills = files(f"fallback_plugins.{plugin}") / "skills"
        _compile((skills / "leaf-llm-instruction.md").read_text(encoding="utf-8"))
    _kept_form()
    Ed25519PrivateKey.generate()  # the first one of a process sets up its library


@cache
def warm_once() -> None:
    """For a test process, which forks children of its own."""
    warm()


def _below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for one in model.__subclasses__():
        yield one
        yield from _below(one)
