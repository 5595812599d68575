"""Two machines that share the record and its evidence, and no lock, have one fix open."""

from functools import partial
from pathlib import Path

import pytest

from fallback_audit.errors import OvertakenError
from fallback_tier.fix.fixer import EndedFix
from fallback_tier.fix.open_fix import OpenFix
from tests.engines.scenario import EngineScenario


@pytest.mark.parametrize("first_is_new", [True, False])
def test_a_fix_that_has_ended_is_delivered_by_one(tmp_path: Path, *, first_is_new: bool) -> None:
    """Though the other had looked before, and found no delivery on record."""
    old, new = (EngineScenario(tmp_path, host=f"apart-{name}") for name in ("old", "new"))
    name = old.add("short")
    with old.opened(name) as began:
        while (key := began.next()) is not None:
            began.step(key)
        with new.opened(name) as took_over:
            assert took_over.next() is None
            first, second = (took_over, began) if first_is_new else (began, took_over)
            _has_looked(second)
            first.deliver()
            with pytest.raises(OvertakenError):
                second.deliver()
    assert new.counted(name)["PatchDelivered"] == 1
    with new.opened(name) as again:
        again.deliver()
    assert new.counted(name)["PatchDelivered"] == 1
    new.check()


def _has_looked(fix: OpenFix | EndedFix) -> None:
    put = fix._put
    assert isinstance(put, partial)
    fix._put = partial(put.func, *put.args[:-1], lambda *_: None)
    put.func.__self__.services.audit.events = lambda *_, **__: iter(())
