"""What manifests ask for, as the lines that uv is handed; and which files make a set."""

import pytest

from fallback_plugins.pypi.manifests.requirements_files import connected, includes, with_requirement
from fallback_plugins.pypi.resolving.uv_client import Wanted
from fallback_plugins.pypi.resolving.wanted import loosened, wanted
from fallback_tier.errors import RecipeError

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
    with pytest.raises(RecipeError, match=r"^requirements\.txt has .*outside the sandbox"):
        wanted({"requirements.txt": f"a==1\n{line}\n"})


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
