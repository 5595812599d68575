"""Commands that this command suggests: each names the locations of this process."""

TYPE_CHECKING = False  # as in fallback_tier/__init__.py
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_locations: "Callable[[], Mapping[str, str]]" = dict


def suggest_with(locations: "Callable[[], Mapping[str, str]]") -> None:
    """Set the function that returns the location options of the command that this process runs. It is
    called only if a message suggests a command."""
    global _locations
    _locations = locations


def command(words: str) -> str:
    """Return a suggested command that works when it is pasted."""
    from fallback_tier.wiring import commands

    return commands.command(words, _locations())


def completed(text: str, escape: "Callable[[str], str]" = lambda text: text) -> str:
    """Return a text in which each command between backticks works when it is pasted."""
    if "`fallback-tier " not in text:
        return text
    from fallback_tier.wiring import commands

    return commands.completed(text, _locations(), escape)
