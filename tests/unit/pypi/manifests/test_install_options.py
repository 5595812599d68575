"""Options of install commands: what takes a word is as pip's own parser and uv's own help say."""

import ensurepip
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fallback_plugins.pypi.manifests.commands import install_commands, literals
from fallback_plugins.pypi.manifests.install_options import takes_word

_PARSED = """
from pip._internal.commands import create_command
for command in ("install", "wheel", "download"):
    for option in create_command(command).parser.option_list_all:
        for name in (*option._short_opts, *option._long_opts):
            print(name, int(option.takes_value()))
"""

#: Options of uv whose values are packages that are installed.
_PACKAGES = {"--with", "-w", "--from", "--with-executables-from"}


def test_pips_own_parser_agrees() -> None:
    bundled = Path(ensurepip.__file__).parent / "_bundled"
    wheel = next(bundled.glob("pip-*.whl"), None)
    if wheel is None:
        pytest.skip("this Python has no pip")
    run = subprocess.run(
        [sys.executable, "-c", _PARSED],
        env={"PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
        check=True,
    )
    options = dict(line.split() for line in run.stdout.splitlines())
    assert len(options) > 80
    wrong = [name for name, value in options.items() if takes_word("pip", name) != (value == "1")]
    assert wrong == []


@pytest.mark.parametrize("command", ["pip install", "tool install", "tool run", "run"])
def test_uvs_own_help_agrees(command: str) -> None:
    uv = shutil.which("uv", path=str(Path(sys.executable).parent))
    assert uv is not None
    run = subprocess.run(
        [uv, *command.split(), "--help"], capture_output=True, text=True, check=True
    )
    listed = re.findall(r"^ +(?:(-\w), )?(--[a-z-]+)(?:\.\.\.)?(?: (<))?", run.stdout, re.MULTILINE)
    client = "uv pip" if command == "pip install" else "uv"
    assert len(listed) > 40
    wrong = [
        name
        for short, long, value in listed
        for name in filter(None, (short, long))
        if takes_word(client, name) != (bool(value) and name not in _PACKAGES)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("command", "requirements"),
    [
        ("pip install -qr requirements/dev.txt --exists-action w", ()),
        ("pip install --exists w -U left", ("left",)),
        ("pip install --root-user-action ignore left", ("left",)),
        ("pip install -Ue mine left==1.0", ("left==1.0",)),
        ("pip install --upgrade left", ("left",)),
        ("pip install --pre left", ("left",)),
        ("pip --cache-dir /tmp/c install left", ("left",)),
        ("pip --proxy proxy -q install left", ("left",)),
        ("pip -q install left", ("left",)),
        ("pip install --allow-external right left", ("left",)),
        ("pipx install -f left", ("left",)),
        ("pipx install --suffix _1 left", ("left",)),
        ("uv pip install --torch-backend auto left", ("left",)),
        ("uv pip install -P left right", ("right",)),
        ("uv pip install --no-binary left right", ("right",)),
        ("uv tool install --no-binary left", ("left",)),
        ("uv --directory sub pip install left", ("left",)),
        ("uv tool install -w left right", ("left", "right")),
        ("uvx -w left right", ("left", "right")),
        ("uvx --color never left", ("left",)),
        ("uv run -w left python a.py", ("left",)),
        ("uv run pip install left==1.0", ("left==1.0",)),
        ("uv --directory app run pip install left==1.0", ("left==1.0",)),
        ("uv --cache-dir /c tool run pip install left", ("left",)),
        ("uv run -- python -m pip install left", ("left",)),
        ("uvx pip install left", ("left",)),
        ("uv pip install -P 'flask==2.0' right", ("flask==2.0", "right")),
        ('pip install --global-option "" left', ("left",)),
        ("mkShell { shellHook = ''pip install left''; }", ("left",)),
        ("uvx --python-preference only-system left", ("left",)),
        ("uv --cache-dir /c/pip tool install --no-binary left", ("left",)),
        ("pip --cache-dir tool/c install left", ("left",)),
    ],
)
def test_words_that_are_packages(command: str, requirements: tuple[str, ...]) -> None:
    read = install_commands("Makefile", f"all:\n\t{command}\n")
    assert tuple(name for it in read for name in it.requirements) == requirements


def test_an_option_between_a_client_and_its_verb_hides_no_pin() -> None:
    assert literals("Makefile", "all:\n\tpip --cache-dir c install left==1.0\n", "left")


@pytest.mark.parametrize("flags", ['"--a", "b", ' * 60, "--a b " * 60, "'--a',\t'b' ," * 60])
@pytest.mark.parametrize("start", ["pip", "uv", "uv pip"])
def test_a_command_that_installs_nothing_is_read_in_linear_time(start: str, flags: str) -> None:
    """More than linear time would be hours."""
    program = start.replace(" ", '", "')
    assert install_commands("Dockerfile", f'CMD ["{program}", {flags}"list"]\n') == ()


def test_commands_that_run_one_another_are_bounded() -> None:
    assert install_commands("Makefile", "a:\n\t" + "uv run " * 5_000 + "pip install left\n") == ()
