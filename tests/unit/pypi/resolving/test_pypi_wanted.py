"""What manifests ask for, as the lines that uv is handed; and which files make a set."""

from contextlib import nullcontext

import pytest

from fallback_plugins.pypi.manifests.pyproject import parse_toml
from fallback_plugins.pypi.manifests.requirements import connected, includes, with_requirement
from fallback_plugins.pypi.resolving.uv_client import Wanted
from fallback_plugins.pypi.resolving.wanted import check_dynamic, loosened, project_lines, wanted
from fallback_tier.errors import RecipeError
from tests.kinds import OfKind

TABLES = """\
[project]
name = "My.App"
dependencies = ["a>=1 ; python_version > '3'", "my-app[dev]"]
optional-dependencies = { dev = ["b [x] ==2"] }
[dependency-groups]
test = ["c", {include-group = "dev"}]
[tool.poetry.dependencies]
python = "^3.9"
d = { version = "^1.2", extras = ["y"] }
e = [{ version = "~1.2", python = "<3" }, { version = "2.0", python = ">=3" }]
[tool.uv]
constraint-dependencies = ["f<2"]
override-dependencies = ["g==3"]
dev-dependencies = ["h"]
"""


@pytest.mark.parametrize(
    ("texts", "asked"),
    [
        (
            {
                "requirements.txt": "# x\n--require-hashes\na==1 \\\n  --hash=sha256:0\n"
                "B[x]>=2;os_name=='a'\n"
            },
            Wanted(("a==1", 'B[x]>=2; os_name == "a"')),
        ),
        (
            {
                "requirements.txt": "-r sub/requirements.txt\n-c limits-requirements.txt\na\n",
                "sub/requirements.txt": "b\n",
                "limits-requirements.txt": "b<2\n",
                "constraints.txt": "c<3",
            },
            Wanted(("a", "b"), ("c<3", "b<2")),
        ),
        (
            {"pyproject.toml": TABLES},
            Wanted(
                (
                    'a>=1; python_version > "3"',
                    "b[x]==2",
                    "c",
                    "h",
                    "d[y]<2,>=1.2",
                    'e<1.3,>=1.2; python_full_version < "3"',
                    'e==2.0; python_full_version >= "3"',
                ),
                ("f<2",),
                ("g==3",),
            ),
        ),
        (
            {
                "Pipfile": '[packages]\na = "*"\n[dev-packages]\n'
                'b = { version = "==1" }\n[scripts]\nx = "y"\n'
            },
            Wanted(("a", "b==1")),
        ),
        (
            {
                "setup.cfg": "[options]\ninstall_requires =\n  a>1\n"
                "[options.extras_require]\nx =\n  b\n"
            },
            Wanted(("a>1", "b")),
        ),
        (
            {"setup.py": "setup(install_requires=['a'], extras_require={'x': ['b']})"},
            Wanted(("a", "b")),
        ),
    ],
)
def test_what_is_asked_for(texts: dict[str, str], asked: Wanted) -> None:
    assert wanted(texts) == asked


@pytest.mark.parametrize(
    "line",
    [
        *("-i https://x", "--index-url=https://x", "--extra-index-url https://x", "-f ./x"),
        *("--no-index", "-e .", "--editable=.", "a @ file:///x", "./x.whl", "a==${V}", "a b"),
        *("-r absent.txt", "--constraint ../c.txt", "--trusted-host x", "--unknown"),
    ],
)
def test_what_uv_is_not_told(line: str) -> None:
    with pytest.raises(RecipeError, check=OfKind("not_resolved"), match=r"^requirements\.txt "):
        wanted({"requirements.txt": f"a==1\n{line}\n"})


HEAD = "from setuptools import setup\nextras = {'a': ['x'], 'b': 'y\\nz'}\n"


@pytest.mark.parametrize(
    "text",
    [
        "extras['all'] = sum(extras.values(), [])\nsetup(name='n', extras_require=extras)",
        (
            "c = [i for k, v in extras.items() for i in v if k != 'a']\n"
            "setup(name='n', extras_require=dict(extras, c=c))"
        ),
        "setup(name='n', extras_require={**extras, 'all': sorted({*extras['a'], 'x'})})",
        (
            "more = []\nfor _, v in extras.items():\n    more.extend(v)\nextras['all'] = more\n"
            "setup(name='n', extras_require=extras)"
        ),
        "extras['all'] = ['n[a,b]']\nsetup(name='n', extras_require=extras)",
        "words = dict(name='n', extras_require=extras)\nsetup(**dict(words))",
        (
            "extras['c'] = ['x']\nextras['d'] = extras['c'] + ['z']\n"
            "setup(name='n', extras_require=extras)"
        ),
    ],
)
def test_extras_that_put_others_together_are_read(text: str) -> None:
    assert {*wanted({"setup.py": HEAD + text}).requirements} == {"x", "y", "z"}


@pytest.mark.parametrize(
    "text",
    [
        "setup(name='n', extras_require=read())",
        "extras['c'] = read()\nsetup(name='n', extras_require=extras)",
        "extras.update(read())\nsetup(name='n', extras_require=extras)",
        "setup(name='n', extras_require={**extras, **read()})",
        "setup(name='n', extras_require={'c': [f'{it}==1' for it in extras['a']]})",
        "for it in read():\n    extras['c'] = it\nsetup(name='n', extras_require=extras)",
        "for it in ls():\n    extras[it] = read(it)\nsetup(name='n', extras_require=extras)",
        "extras['a'].append(read())\nsetup(name='n', extras_require=extras)",
        "extras['a'] += read()\nsetup(name='n', extras_require=extras)",
        "extras.setdefault('c', []).append('w')\nsetup(name='n', extras_require=extras)",
        (
            "words = dict(name='n', install_requires=['x'], extras_require=extras)\n"
            "words['install_requires'].append(read())\nsetup(**words)"
        ),
        "setup(name='n', **read())",
        "if x:\n    setup(name='n')\nelse:\n    setup(name='n', install_requires=['w'])",
    ],
)
def test_what_a_script_computes_is_unknown(text: str) -> None:
    with pytest.raises(RecipeError, check=OfKind("not_resolved"), match=r"setup\.py .*\(`"):
        wanted({"setup.py": HEAD + text})


def test_a_list_that_another_takes_the_place_of_may_be_there() -> None:
    text = "if fast:\n    extras['a'] = []\nsetup(name='n', extras_require=extras)"
    assert {*wanted({"setup.py": HEAD + text}).requirements} == {"x", "y", "z"}


def test_an_extra_of_a_folder_that_is_computed_is_unknown() -> None:
    script = HEAD + "setup(name='n', install_requires=['w'], extras_require=read())"
    assert project_lines({"setup.py": script}, ()) == ("w",)
    with pytest.raises(RecipeError, match="extras_require"):
        project_lines({"setup.py": script}, ("dev",))


@pytest.mark.parametrize(
    ("dynamic", "hook", "is_read"),
    [
        ("optional-dependencies", "requirements_txt.optional-dependencies]\nx = ['x.txt']", True),
        ("optional-dependencies", "requirements_txt]\nfiles = ['x.txt']", False),
        ("dependencies", "requirements_txt]\nfiles = ['x.txt']", True),
        ("dependencies", "requirements_txt]\n", False),
    ],
)
def test_which_files_hatch_reads(dynamic: str, hook: str, is_read: bool) -> None:
    build = "[build-system]\nbuild-backend = 'hatchling.build'\n[project]\n"
    text = f"{build}dynamic = ['{dynamic}']\n[tool.hatch.metadata.hooks.{hook}"
    with nullcontext() if is_read else pytest.raises(RecipeError, match=dynamic):
        check_dynamic("pyproject.toml", parse_toml("pyproject.toml", text), {})


def test_room_to_move() -> None:
    asked = Wanted(("a[x]==1 ; os_name == 'b'", "b<2", "c"), ("a<2", "d<2", "e<2"))
    assert loosened(asked, {"a": "1.5"}, {"b": "1.9"}, {"d"}) == Wanted(
        ('a[x]>=1.5; os_name == "b"', "b==1.9", "c"), ("e<2",)
    )


def test_sets_of_files() -> None:
    texts = {
        "requirements.in": "-r requirements/base.txt",
        "requirements.txt": "a",
        "requirements/base.txt": "--constraint=../constraints.txt\n-r other.txt",
        "constraints.txt": "",
        "requirements/dev.txt": "",
    }
    assert includes("requirements/base.txt", texts["requirements/base.txt"]) == (
        ("constraints.txt", True),
        ("requirements/other.txt", False),
    )
    assert connected(texts) == (
        ("constraints.txt", "requirements.in", "requirements.txt", "requirements/base.txt"),
        ("requirements/dev.txt",),
    )


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("a==1", "a==1\nb==2\n"),
        ("# c\r\na==1\r\n", "# c\r\na==1\r\nb==2\r\n"),
        ("-r x\na>=1\nc==2\n", "-r x\na>=1\nc==2\nb>=2\n"),
        ("", "b>=2\n"),
    ],
)
def test_an_added_line_has_the_files_style(text: str, new: str) -> None:
    assert with_requirement(text, "b", "2") == new
