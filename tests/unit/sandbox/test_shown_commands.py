"""What a command is called while it runs: as its project calls it."""

import pytest

from fallback_tier.sandbox.process import _own_words

BECOMES = 'PATH="$1:$PATH"; export PATH; shift; exec "$@"'
AROUND = 'start_a_server\n"$@"\nexit $?'


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["pytest", "-q"], "pytest -q"),
        (["/usr/bin/node", "test.js"], "node test.js"),
        (["sh", "-c", "npm test"], "npm test"),
        (["/bin/sh", "-c", f"npm test -- {'x' * 90}"], f"npm test -- {'x' * 90}"),
        (["sh", "-c", BECOMES, "sh", "/programs", "jest", "--ci"], "jest --ci"),
        (["sh", "-c", "x\ny", "sh", "/env/stand-ins", "pytest -q"], "pytest -q"),
        (["sh", "-c", AROUND, "sh", "sh", "-c", "x\ny", "sh", "/env/stand-ins", "tox"], "tox"),
        (["sh", "-c", AROUND, "sh", "sh", "-c", "npm test"], "npm test"),
        (["sh", "-c", "\nfirst\nsecond"], "first"),
        (["sh", "-c"], "sh -c"),
        (["bash", "-c"], "bash -c"),
    ],
)
def test_a_command_is_called_as_its_project_calls_it(command: list[str], shown: str) -> None:
    assert " ".join(_own_words(command)) == shown
