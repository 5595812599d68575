"""Orders of names, by the committed seed."""

import random
import tomllib
from pathlib import Path

from tests.eval_repos.cases import load_cases
from tests.eval_repos.drawing import FRAME

HERE = Path(__file__).parent
SEED = "tests-judged-1"


def orders() -> dict[tuple[str, str], list[str]]:
    """Return the names of each list in the order in which the draw tries them."""
    frame = tomllib.loads(FRAME.read_text(encoding="utf-8"))["names"]
    earlier = {case.repo for case in load_cases()}
    found = {}
    for one in tomllib.loads((HERE / "names.toml").read_text(encoding="utf-8"))["list"]:
        names = (frame[one["frame"]] if "frame" in one else one["names"]).split()
        random.Random(f"{SEED} {one['client']} {one['kind']}").shuffle(names)
        found[one["client"], one["kind"]] = [name for name in names if name not in earlier]
    return found


if __name__ == "__main__":
    for (client, kind), names in orders().items():
        print(f"{client} {kind}:", *names)
