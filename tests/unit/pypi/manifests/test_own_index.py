"""Whose archive has a package's name is known only where no index of the project's own is named."""

import json

import pytest

from fallback_plugins.pypi.manifests.indexes import indexes_named, is_public

CORP = "https://corp.invalid/simple"
HOST = ".".join(("pypi", "org"))
PUBLIC = f"https://{HOST}/simple"


def locked(url: str) -> str:
    return f'[[package]]\nname = "a"\nversion = "1"\nsource = {{ registry = "{url}" }}\n'


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("pyproject.toml", f'[[tool.uv.index]]\nurl = "{CORP}"\n'),
        ("pyproject.toml", f'[tool.uv]\nindex-url = "{CORP}"\n'),
        ("pyproject.toml", f'[tool.uv]\nextra-index-url = ["{CORP}"]\n'),
        ("pyproject.toml", '[tool.uv]\nfind-links = ["wheels"]\n'),
        ("pyproject.toml", f'[tool.uv.pip]\nindex-url = "{CORP}"\n'),
        ("pyproject.toml", f'[tool.uv.pip]\nextra-index-url = ["{CORP}"]\n'),
        ("pyproject.toml", '[tool.uv.pip]\nfind-links = ["wheels"]\n'),
        ("pyproject.toml", f'[[tool.poetry.source]]\nname = "corp"\nurl = "{CORP}"\n'),
        ("pyproject.toml", f'[tool.poetry.source]\nurl = "{CORP}"\n'),
        ("pyproject.toml", f'[[tool.pdm.source]]\nname = "pypi"\nurl = "{CORP}"\n'),
        ("pyproject.toml", "[tool\n"),
        ("pyproject.toml", f'[tool.pip-tools]\nextra-index-url = ["{CORP}"]\n'),
        ("pyproject.toml", f'[[tool.rye.sources]]\nname = "corp"\nurl = "{CORP}"\n'),
        ("pyproject.toml", f'[tool.pixi.pypi-options]\nextra-index-urls = ["{CORP}"]\n'),
        ("pyproject.toml", f'[tool.hatch.envs.a.env-vars]\nPIP_INDEX_URL = "{CORP}"\n'),
        ("pyproject.toml", f'[tool.hatch.envs.a.env-vars]\nUV_DEFAULT_INDEX = "{CORP}"\n'),
        ("pyproject.toml", f"[tool.tox]\nlegacy_tox_ini = 'setenv = PIP_INDEX_URL = {CORP}'\n"),
        (
            "pyproject.toml",
            f"[tool.tox.env]\ninstall_command = ['pip', 'install', '-i', '{CORP}']\n",
        ),
        ("hatch.toml", f'[envs.a.env-vars]\nUV_INDEX = "{CORP}"\n'),
        ("tox.ini", f"[testenv]\ninstall_command = pip install -i {CORP} {{packages}}\n"),
        ("tox.ini", f"[testenv]\ninstall_command = uv pip install --index={CORP} {{packages}}\n"),
        ("tox.ini", f"[testenv]\ncommands = pip install -i{CORP} a\n"),
        ("tox.ini", f"[testenv]\ncommands = pip install \\\n    -i {CORP} a\n"),
        ("tox.ini", f"[testenv]\ncommands = pip install --extra {CORP} a\n"),
        ("tox.ini", f"[testenv]\ncommands = python -m pip wheel -f{CORP} a\n"),
        ("tox.toml", f'[env]\ninstall_command = [\n "install",\n "-i",\n "{CORP}"]\n'),
        ("tox.toml", f'[env]\ninstall_command = [\n "install",\n "-f", "{CORP}"]\n'),
        ("pyproject.toml", f'[tool.pip-tools]\npip_args = "-i {CORP}"\n'),
        ("pip.conf", f"# ours\r[global]\rindex-url = {CORP}\r"),
        ("Pipfile", f'[[source]]\nurl = "{CORP}"\n'),
        ("Pipfile", f'[[source]]\nurl = "{PUBLIC}"\n[[source]]\nurl = "{CORP}"\n'),
        ("Pipfile", '[[source]]\nurl = "https://${CORP}/simple"\n'),
        ("Pipfile", "[[source]\n"),
        ("uv.toml", f'index-url = "{CORP}"\n'),
        ("uv.toml", f'[[index]]\nurl = "{CORP}"\n'),
        ("lib/uv.toml", f'[pip]\nindex-url = "{CORP}"\n'),
        ("pdm.toml", f'[pypi]\nurl = "{CORP}"\n'),
        ("pip.conf", f"[global]\nindex-url = {CORP}\n"),
        ("setup.cfg", f"[easy_install]\nindex_url = {CORP}\n"),
        ("tox.ini", f"[testenv]\nindexserver =\n    default = {CORP}\n"),
        ("requirements.txt", f"a\n--index-url {CORP}\n"),
        ("requirements.txt", f"--extra-index-url={CORP}\n"),
        ("requirements.txt", f"-i {CORP}\n"),
        ("requirements.txt", f"-i{CORP}\n"),
        ("requirements.txt", f"--trusted-host corp.invalid --extra-index-url {CORP}\n"),
        ("requirements.txt", f"--extra-index {CORP}\n"),
        ("requirements.txt", f"--pypi-url {CORP}\n"),
        *(
            ("requirements.txt", f"{option} {CORP}\n")
            for option in ("--ex", "--extr", "--i", "--ind", "--py", "--f", "--fin", "--no-i")
        ),
        ("requirements.txt", f"a\v--index-url {CORP}\n"),
        ("requirements.txt", f"a\u2028--index-url {CORP}\n"),
        ("requirements.txt", "--find-links wheels\n"),
        ("requirements.txt", "-f wheels\n"),
        ("requirements.txt", "--no-index\n"),
        ("requirements.txt", f'--pre "--index-url={CORP}"\n'),
        ("requirements.txt", f"--pre \\--index-url={CORP}\n"),
        ("pip.conf", f"[global]\npypi-url = {CORP}\n"),
        (".pdm.toml", f'[pypi]\nurl = "{CORP}"\n'),
        ("tox.ini", "[testenv]\ninstall_command = pip install -i {env:IDX} {packages}\n"),
        ("tox.ini", "[testenv]\ncommands = pip install -f wheels a\n"),
        ("tox.ini", "[testenv]\nsetenv = PIP_CONFIG_FILE = corp.conf\n"),
        ("uv.lock", "[[package]\n"),
        ("Pipfile.lock", "{"),
    ],
)
def test_one_of_its_own(path: str, text: str) -> None:
    found = indexes_named({path: text})
    assert found.own
    assert not found.only(CORP)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("uv.lock", locked(PUBLIC) + locked(CORP)),
        ("pylock.toml", f'[[packages]]\nname = "a"\nindex = "{CORP}/"\n'),
        (
            "poetry.lock",
            f'[[package]]\nname = "a"\n[package.source]\ntype = "legacy"\nurl = "{CORP}"\n',
        ),
        ("Pipfile.lock", json.dumps({"_meta": {"sources": [{"url": CORP}]}})),
    ],
)
def test_a_lock_names_the_registry_that_is_asked_or_another(path: str, text: str) -> None:
    found = indexes_named({path: text})
    assert found.only(CORP)
    assert not found.only(f"{PUBLIC}/")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("pyproject.toml", '[project]\nname = "a"\n[tool.uv]\npackage = true\n'),
        ("pyproject.toml", '[[tool.poetry.source]]\nname = "PyPI"\npriority = "primary"\n'),
        ("pyproject.toml", f'[[tool.pdm.source]]\nname = "pypi"\nurl = "{PUBLIC}/"\n'),
        ("Pipfile", f'[[source]]\nname = "pypi"\nurl = "{PUBLIC}"\n'),
        ("Pipfile.lock", json.dumps({"_meta": {"sources": [{"url": PUBLIC}]}})),
        ("pyproject.toml", f'[[tool.rye.sources]]\nname = "default"\nurl = "{PUBLIC}/"\n'),
        ("pyproject.toml", '[tool.a]\nindex = "b"\ncommand = "c -i d --indexes e -f g"\n'),
        ("requirements.txt", "--pre\n--prefer-binary\n--only-binary :all:\n--no-binary b\n"),
        ("requirements.txt", "--editable .\n--require-hashes\n--trusted-host corp.invalid\n"),
        ("uv.lock", locked(PUBLIC)),
        ("uv.toml", "[pip]\nupgrade = true\n"),
        ("requirements.txt", "-r other.txt\n-e .\nfind-links==1\na --hash=sha256:1\n"),
        ("setup.cfg", "[metadata]\nname = a\n"),
        ("setup.py", f"setup(name='a', dependency_links=['{CORP}'])\n"),
        ("pyproject.toml", "  # do not use --index-url here\n[tool.a]\n"),
        ("pyproject.toml", "[tool.pip-tools]\nemit-index-url = false\nno-emit-find-links = true\n"),
        ("pyproject.toml", "[tool.a]\nb = 'pip-compile --no-emit-index-url c.in'\n"),
        ("pyproject.toml", "[project.scripts]\ncasino_index = 'a:b'\n"),
        ("tox.ini", "[testenv]\ncommands = curl -f https://corp.invalid/a\n"),
        ("tox.ini", "[testenv]\ndeps =\n    -rrequirements.txt\n"),
    ],
)
def test_none(path: str, text: str) -> None:
    assert indexes_named({path: text}).only(PUBLIC)


@pytest.mark.parametrize(
    "url",
    [
        f"http://{HOST}/simple",
        f"https://{HOST}.corp.invalid/simple",
        f"https://{HOST}:8443/simple",
        f"https://{HOST}/corp/simple",
        "https://[",
        "",
    ],
)
def test_what_only_looks_like_the_public_one(url: str) -> None:
    assert not is_public(url)


def test_what_can_not_be_read_may_name_one() -> None:
    assert indexes_named({}, unread=True).own
    assert indexes_named({"uv.lock": locked(PUBLIC)}, unread=True).own
    assert not indexes_named({}).own
