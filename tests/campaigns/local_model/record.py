"""Record the cassettes again, against a real model (`make record`).

    python tests/campaigns/local_model/record.py retry --base-url http://127.0.0.1:8311
    python tests/campaigns/local_model/record.py demo  --base-url http://127.0.0.1:8311

Without ``--base-url`` it records against the provider's own API, and needs ANTHROPIC_API_KEY and
``--model``. What was recorded, when, and from which server and model stands in each cassette.

The same answers come again only from the same bytes: the model and the server of ``serve.py``, freshly
started (its prompt cache is state), with the same ``--seed``, ``--temp`` and ``--threads``, and an
unchanged prompt. ``--sampling`` says in the cassette what they were.

A behaviour that needs a precise answer is recorded against the scripted server instead:
``tests/cassettes/recorder.py``.
"""

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from fallback_plugins.messages_api.model import ClaudeModel  # noqa: E402
from fallback_tier.demo.cassette import use_cassette  # noqa: E402
from fallback_tier.outcome import Applied  # noqa: E402
from fallback_tier.ports import LanguageModel  # noqa: E402
from tests.campaigns.local_model.serve import CPU_LIBRARY, MODEL, MODEL_SHA256, SERVER  # noqa: E402

SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)

#: A small model on a busy machine.
TIMEOUT_S = 1_800.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=sorted(RECORDINGS))
    parser.add_argument("--base-url")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--note", default="", help="stated in the cassette")
    parser.add_argument("--sampling", default="not known", help="stated too: seed, temperature")
    arguments = parser.parse_args()
    if os.environ.get("CI"):
        raise SystemExit("Cassettes are recorded by a person, never in CI.")
    author = ClaudeModel(
        arguments.model,
        base_url=arguments.base_url,
        api_key=None if arguments.base_url else os.environ["ANTHROPIC_API_KEY"],
        max_retries=0,
        timeout_s=TIMEOUT_S,
    )
    RECORDINGS[arguments.what](author, provenance(arguments))
    return 0


def provenance(arguments: argparse.Namespace) -> dict[str, str]:
    """What a cassette says about itself."""
    local = arguments.base_url is not None
    return {
        "model": arguments.model,
        "model_sha256": MODEL_SHA256 if local else "not published",
        "server": f"llama.cpp's server ({SERVER}, CPU library of {CPU_LIBRARY})"
        if local
        else "the provider's API",
        "recorded": datetime.now(UTC).date().isoformat(),
        "sampling": arguments.sampling,
        "scrubbed": "headers by allow-list; the server's address replaced",
        "selection": arguments.note or "the first recording",
    }


def secrets() -> frozenset[str]:
    """What this process knows and no cassette may show: values of variables that are named so."""
    return frozenset(
        value for name, value in os.environ.items() if value and SECRET_NAME.search(name)
    )


def record_retry(author: LanguageModel, facts: Mapping[str, str]) -> None:
    """One retry with a given history: tests/cassettes/retry/phase4.yaml."""
    from tests.cassettes.player import CASSETTES
    from tests.fixtures.retry_case import CASSETTE, Simulator

    with (
        tempfile.TemporaryDirectory() as folder,
        use_cassette(CASSETTES / CASSETTE, record=True, provenance=facts, secrets=secrets()),
    ):
        application = Simulator(Path(folder)).run(author)
        if not isinstance(application, Applied):
            raise SystemExit(f"not recorded: {application.reason}: {application.sentence}")
    print(application.diff)


def record_demo(author: LanguageModel, facts: Mapping[str, str]) -> None:
    """The demo's fix that fails its gates once: fallback_tier/demo/cassettes/retry.yaml."""
    from rich.console import Console

    from fallback_tier.demo.show import Demo

    cassette = ROOT / "fallback_tier" / "demo" / "cassettes" / "retry.yaml"
    cassette.parent.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        use_cassette(cassette, record=True, provenance=facts, secrets=secrets()),
    ):
        if not Demo(Path(folder), Console()).play_retry(author):
            raise SystemExit("not recorded: the fix was not proved")


def record_judged(author: LanguageModel, facts: Mapping[str, str]) -> None:
    """A doubted plan, regenerated: answers written by hand, so no model is asked."""
    from tests.cassettes.player import CASSETTES
    from tests.cassettes.recorder import record_scripted
    from tests.fakes.audit import MemoryAudit
    from tests.fixtures.judged_case import ANSWERS, CASSETTE, WHY, play

    with tempfile.TemporaryDirectory() as folder:
        record_scripted(
            CASSETTES / CASSETTE,
            ANSWERS,
            lambda model: play(Path(folder), MemoryAudit(), model),
            why=WHY,
        )


RECORDINGS: dict[str, Callable[[LanguageModel, Mapping[str, str]], None]] = {
    "retry": record_retry,
    "demo": record_demo,
    "judged": record_judged,
}

if __name__ == "__main__":
    raise SystemExit(main())
