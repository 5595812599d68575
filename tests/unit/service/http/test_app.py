"""No request builds what another one is using: all of it is there before the first."""

import subprocess
import sys
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter

from fallback_tier.service.http import app as building

SCRIPT = """
import gc
import tempfile
from pathlib import Path
from pydantic import TypeAdapter
from fallback_audit.frozen import Frozen
from fallback_tier.service.http import app as building
from tests.service.scenario import service_scenario

def below(model):
    for one in model.__subclasses__():
        yield one
        yield from below(one)

def adapters():
    return {id(one) for one in gc.get_objects() if isinstance(one, TypeAdapter)}

def unbuilt():
    return [one.__name__ for one in below(Frozen) if not one.__pydantic_complete__]

assert len(unbuilt()) > 50
assert building.unbuilt_adapters()
with tempfile.TemporaryDirectory() as place, service_scenario(Path(place)) as service:
    client = service.client()
    assert unbuilt() == []
    assert building.unbuilt_adapters() == []
    there = adapters()
    for path in ("/v1/fixes", "/v1/reviews/x", "/v1/audit/events", "/v1/session", "/nowhere"):
        client.get(path)
    assert adapters() - there == set()
"""


def test_all_is_built_before_the_first_request() -> None:
    """In a process of its own: here the other tests have built them."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_adapter_of_a_field_that_is_left_out_of_documents_is_built_in_silence() -> None:
    """As FastAPI makes them when it describes a model; warnings are errors here."""
    later = ConfigDict(defer_build=True)
    adapter = TypeAdapter[str | None](Annotated[str | None, Field(exclude=True)], config=later)
    building.build_models()
    assert adapter.pydantic_complete
