"""Goals 3 and 13, and what the leaf is made of: a model's fix with the model's time left out."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.campaigns.bench.measure import Command, Processes
from tests.campaigns.bench.row import Bench, Pair, Row
from tests.campaigns.bench.rows_recipe import pair
from tests.campaigns.bench.targets import Kind, Target, loopback, osv

_SERVER = Path(__file__).with_name("model_server.py")

#: Modules beside the vulnerable one: a small service.
MODULES = 60

_OLD = "    return (ROOT / name).read_text()"
_NEW = (
    "    place = (ROOT / name).resolve()\n"
    "    if ROOT.resolve() not in place.parents:\n"
    "        raise ValueError(name)\n"
    "    return place.read_text()"
)
_CHANGE = {"path": "notesbox/store.py", "old": _OLD, "new": _NEW}


def _module(number: int) -> str:
    """A plausible neighbour: functions and a class that call each other."""
    names = ", ".join(f"field_{field}" for field in range(4))
    return (
        f'"""Part {number} of the service."""\n\n'
        "from notesbox import store\n\n\n"
        f"class Record{number}:\n"
        f"    def __init__(self, {names}):\n"
        f"        self.values = [{names}]\n\n"
        "    def total(self):\n"
        "        return sum(len(str(value)) for value in self.values)\n\n\n"
        f"def load_{number}(name):\n"
        "    text = store.read_note(name)\n"
        f"    return Record{number}(*text.splitlines()[:4])\n"
    )


OWN_CODE = Kind(
    files={
        "pyproject.toml": '[project]\nname = "notesbox"\nversion = "1.0.0"\n',
        "notesbox/__init__.py": "",
        "notesbox/store.py": "from pathlib import Path\n\nROOT = Path('notes')\n\n\n"
        f"def read_note(name):\n{_OLD}\n",
        **{f"notesbox/part_{number}.py": _module(number) for number in range(MODULES)},
    },
    proof="notesbox/store.py",
    fixed="raise ValueError(name)",
    advisory={
        **osv("PyPI", "notesbox", "1.0.1"),
        "summary": "notesbox reads files outside its folder",
        "details": "read_note joins a name to the notes folder and does not check where it leads.",
    },
)

_TASK = (
    "notesbox/store.py: read_note joins a name to the notes folder and does not check where it leads. "
    "Fix this vulnerability."
)


@contextmanager
def against_mini(bench: Bench) -> Iterator[Pair]:
    """mini-swe-agent's least: one edit, then the word that ends the task."""
    settings = {
        "MSWEA_GLOBAL_CONFIG_DIR": str(bench.place / "mini"),
        "MSWEA_SILENT_STARTUP": "1",
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
    }
    options = ["--model", "openai/scripted", "--task", _TASK, "--yolo", "--exit-immediately"]
    output = ["--output", bench.place / "trajectory.json"]
    with _against(
        bench, "mini-swe-agent", [bench.peer("mini"), *options, *output], settings
    ) as found:
        yield found


@contextmanager
def against_aider(bench: Bench) -> Iterator[Pair]:
    """aider with the file named, its checks for updates, its analytics and its commits off."""
    options = ["--model", "openai/scripted", "--message", _TASK, "--edit-format", "diff"]
    quiet = ["--yes-always", "--no-auto-commits", "--no-gitignore", "--no-check-update"]
    quiet += ["--analytics-disable", "--no-show-model-warnings", "--no-show-release-notes"]
    quiet += ["--no-pretty", "--no-stream", "--no-detect-urls", "--no-fancy-input"]
    program = bench.peer("aider", "aider")
    with _against(
        bench, "aider", [program, *options, *quiet, _CHANGE["path"]], {"HOME": str(bench.place)}
    ) as found:
        yield found


@contextmanager
def _against(
    bench: Bench, label: str, argv: list[str | Path], settings: Mapping[str, str]
) -> Iterator[Pair]:
    target = Target.create(bench.place, OWN_CODE)
    change = bench.place / "change.json"
    change.write_text(json.dumps(_CHANGE))
    with loopback(_SERVER, change) as port:
        url = f"http://127.0.0.1:{port}"
        # Both would ask a server for a price list first.
        local = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_API_KEY": "no-key"}
        env = {"OPENAI_API_BASE": f"{url}/v1", **local, **settings}
        theirs = Processes(label, [Command(argv, target.root, env=env)], [target.reset])
        yield pair(bench, target, theirs, "--model", "scripted", "--base-url", url)


ROWS = (
    Row("llm-mini", "LLM attempt, model time left out", "3", 0.5, 7, against_mini),
    Row("llm-aider", "The same against aider", "3", 0.5, 5, against_aider),
)
