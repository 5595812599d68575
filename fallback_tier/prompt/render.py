"""Rendering of a prompt template's blocks (jinja2): a missing variable is an error, never an empty text."""

from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fallback_tier.errors import ConfigurationError

if TYPE_CHECKING:
    from jinja2 import Template


def render(text: str, block: str, variables: Mapping[str, Any], *, next_step: str) -> str:
    """Return one rendered block of a template. Raises ConfigurationError with ``next_step`` if it
    is wrong."""
    from jinja2 import TemplateError

    try:
        template = _compile(text)
        blocks = template.blocks[block]
        return "".join(blocks(template.new_context(dict(variables))))
    except KeyError as error:
        raise ConfigurationError(
            f"The prompt template has no block `{block}`.", next_step=next_step, kind="no_block"
        ) from error
    except TemplateError as error:
        raise ConfigurationError(
            f"The prompt template's block `{block}` can't be rendered: {error.message}.",
            next_step=next_step,
            kind="not_rendered",
        ) from error


def render_own(name: str, block: str, variables: Mapping[str, Any]) -> str:
    """Return one rendered block of our own template, by its file's name. Raises as ``render``."""
    fix = f"Correct fallback_tier/prompt/templates/{name}."
    return render(_own(name), block, variables, next_step=fix)


@cache
def _own(name: str) -> str:
    return (files("fallback_tier.prompt") / "templates" / name).read_text(encoding="utf-8")


@lru_cache(maxsize=8)
def _compile(text: str) -> "Template":
    from jinja2 import Environment, StrictUndefined

    return Environment(
        undefined=StrictUndefined,
        # A prompt, not HTML: escaping would change the code that is judged and copied.
        autoescape=False,  # noqa: S701
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    ).from_string(text)
