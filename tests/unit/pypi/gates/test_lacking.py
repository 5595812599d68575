"""Whose doing it is that less can be installed, by what uv says of each line."""

from types import SimpleNamespace

import pytest

from fallback_plugins.pypi.gates.checks import lacked_at_base, lacks_by_the_patch
from fallback_plugins.shared.installation import Installed, Level

NO_WHEEL = "Because {} has no usable wheels and you require it, your requirements are unsatisfiable"


def tree(line: str, why: str) -> SimpleNamespace:
    """An environment of one line that can't be had, whatever is installed of it."""
    found = Installed(Level.IN_PART, ((line, why),))
    alone = SimpleNamespace(install=lambda: found)
    return SimpleNamespace(
        install=lambda: found, declaring=lambda _: ("a.txt",), alone=lambda _: alone
    )


@pytest.mark.parametrize(
    ("why", "is_the_patchs"),
    [
        (NO_WHEEL.format("left==1.1"), False),
        (NO_WHEEL.format("left{os_name != '}'}==1.1"), False),
        (NO_WHEEL.format("cleft==1.1"), True),
        (NO_WHEEL.format("c-left==1.1"), True),
        (NO_WHEEL.format("left{sys_platform != '} left==1.1 has no usable wheels {'}==2.0"), True),
    ],
)
def test_a_moved_pin_without_a_wheel_is_no_failure_where_it_had_none(
    why: str, is_the_patchs: bool
) -> None:
    ours, base = tree("left==1.1", why), tree("left==1.0", NO_WHEEL.format("left==1.0"))
    assert lacks_by_the_patch(ours, base) is is_the_patchs  # type: ignore[arg-type]


ALSO = "it has no wheel; another release of it is installed"


@pytest.mark.parametrize(
    ("there", "here", "lacked"),
    [
        pytest.param(("none", ()), (ALSO, ("left",)), ["left"], id="a release here alone"),
        pytest.param((ALSO, ("left",)), (ALSO, ("left",)), [], id="a release in both"),
        pytest.param((ALSO, ("left",)), ("none", ()), [], id="a release there alone"),
        pytest.param(("none", ()), ("none", ()), [], id="none in either"),
        pytest.param(("none", ()), ("none", ("other",)), [], id="another package here"),
        pytest.param((ALSO, ("left",)), ("", ("left",)), ["left"], id="the right one here alone"),
    ],
)
def test_what_could_not_be_had_at_the_base_commit(
    there: tuple[str, tuple[str, ...]], here: tuple[str, tuple[str, ...]], lacked: list[str]
) -> None:
    def made(why: str, names: tuple[str, ...], line: str) -> SimpleNamespace:
        found = Installed(Level.IN_PART, ((line, why),) if why else ())
        return SimpleNamespace(install=lambda: found, distributions=lambda: dict.fromkeys(names))

    ours, base = made(*here, "left==1.1"), made(*there, "left==1.0")
    assert lacked_at_base(ours, base) == lacked  # type: ignore[arg-type]
