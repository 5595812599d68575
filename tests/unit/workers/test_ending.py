"""A fix that takes too long has taken too long, whatever it was interrupted in."""

import pytest

from fallback_tier.workers.ending import Late, is_late


def strike(*_: object) -> None:
    raise Late


class _Interrupted:
    """As a descriptor of a class that is made while a module is imported."""

    __set_name__ = strike


def a_class_is_made() -> None:
    type("Made", (), {"name": _Interrupted()})


def a_plugin_is_blamed() -> None:
    try:
        a_class_is_made()
    except Exception as error:
        raise ValueError("The plugin failed.") from error


def a_handler_fails() -> None:
    try:
        strike()
    except Late:
        raise OSError("It could not be closed.")  # noqa: B904 (as a handler that fails)


@pytest.mark.parametrize("end", [strike, a_class_is_made, a_plugin_is_blamed, a_handler_fails])
def test_what_comes_of_the_limit_is_told_as_the_limit(end: object) -> None:
    with pytest.raises(BaseException) as raised:
        end()  # type: ignore[operator]
    assert is_late(raised.value)


def test_nothing_else_is() -> None:
    with pytest.raises(ValueError) as raised:
        int("x")
    assert not is_late(raised.value)
