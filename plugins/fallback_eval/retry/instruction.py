"""The instruction of the study: the product's, as far as a model of 1.5 billion parameters can follow it.

The product's instruction has some 640 tokens for four actions and a worked example, which such a model
copies (docs/evaluation/retry/plan.md). Here are one action, the same form of an answer, the same fences,
and what the product shows: snippets, examples, how the proof fails, the last attempt, the advisory.
"""

import re
from importlib.resources import files
from typing import Final

from fallback_tier.ports import EcosystemPlugin, ModelRequest
from fallback_tier.prompt.fence import PREFIX

_PREFIX: Final = re.compile(f"^{re.escape(PREFIX)}", re.MULTILINE)

_TEMPLATE: Final = files(__package__).joinpath("instruction.md").read_text(encoding="utf-8")

_TEMPLATE_OF: Final = {
    name: _TEMPLATE.replace("LANGUAGE", language)
    for name, language in (("PyPI", "Python"), ("npm", "JavaScript"))
}


class StudyInstruction:
    """An ecosystem's plugin with the study's instruction. All else is the plugin's."""

    def __init__(self, plugin: EcosystemPlugin) -> None:
        self._plugin = plugin

    def __getattr__(self, name: str) -> object:
        return getattr(self._plugin, name)

    def instruction_template(self) -> str:
        """Return the study's template for this ecosystem."""
        return _TEMPLATE_OF[self._plugin.name]


def bare_prefix(request: ModelRequest) -> ModelRequest:
    """Return the request with ``|`` alone before each line of a fence.

    Such a model takes the blank after it for indentation: Python whose lines begin with five blanks.
    """
    messages = tuple(
        one.model_copy(update={"content": _PREFIX.sub(PREFIX.rstrip(), one.content)})
        for one in request.messages
    )
    return request.model_copy(update={"messages": messages})
