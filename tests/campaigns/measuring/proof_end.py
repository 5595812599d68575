"""Scripts that prove by their exit code alone, made to say that they ran to their end (ADR-0060).

The cases' own files stay as they were measured; what is given to ``fix`` has one line more. In node it is
said where nothing is left to do: a promise that never settles would be taken for the end, which no case
here has.
"""

from collections.abc import Sequence

END = "no flaw found"

_SAYS_SO = {
    "node": f"\nprocess.on('beforeExit', () => console.log('{END}'));\n",
    "python": f"\nprint('{END}')\n",
}


def is_bare(command: Sequence[str]) -> bool:
    """Is it a script that an interpreter runs, and no test runner?"""
    return len(command) == 2 and command[0] in _SAYS_SO and not command[1].startswith("-")


def saying_its_end(program: str, script: bytes) -> bytes:
    """``program``: ``node`` or ``python``."""
    return script + _SAYS_SO[program].encode()
