"""What an instruction without its worked example still says."""

from importlib.resources import files
from typing import cast

import pytest

from fallback_eval.retry.policies import WithoutWorkedExample
from fallback_tier.errors import ConfigurationError
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.prompt.render import render
from tests.kinds import OfKind


class Instruction:
    """A plugin's part that is asked here. ``name``: what else a plugin has is passed on."""

    name = "npm"

    def __init__(self, text: str) -> None:
        self.text = text

    def instruction_template(self) -> str:
        return self.text


def without(text: str) -> WithoutWorkedExample:
    return WithoutWorkedExample(cast("EcosystemPlugin", Instruction(text)))


@pytest.mark.parametrize("package", ["npm", "pypi"])
@pytest.mark.parametrize("form", ["json", "blocks"])
def test_the_worked_example_alone_is_left_out(package: str, form: str) -> None:
    place = files(f"fallback_plugins.{package}").joinpath("skills", "leaf-llm-instruction.md")
    text = place.read_text(encoding="utf-8")
    whole = render(text, "system", {"answer_form": form}, next_step="")
    cut = render(
        without(text).instruction_template(), "system", {"answer_form": form}, next_step=""
    )
    assert whole.startswith(cut.rstrip())
    assert "(of another repository)" in whole[len(cut.rstrip()) :][:80]
    assert "(of another repository)" not in cut


def test_an_instruction_without_one_is_refused() -> None:
    plugin = without("{% block system %}x{% endblock %}")
    assert plugin.name == "npm"
    with pytest.raises(ConfigurationError, check=OfKind("no_worked_example")):
        plugin.instruction_template()
