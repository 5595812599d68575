"""``fallback-tier eval faithfulness``: ask a judge, publish, check."""

import argparse
import hashlib
import json
import os
import re
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from fallback_audit.disk_errors import blamed
from fallback_audit.showing.describe import visible
from fallback_eval.cli.reporting import print_check
from fallback_eval.cli.retrieval import StageProgress, require_extra
from fallback_tier.cli import exit_codes
from fallback_tier.cli.arguments import add
from fallback_tier.cli.options import JUDGE_KEY, PROVIDER_KEY
from fallback_tier.cli.output import print_json
from fallback_tier.errors import ConfigurationError

if TYPE_CHECKING:
    from fallback_eval.faithfulness.report import FaithfulnessFolder
    from fallback_eval.faithfulness.results import JudgeRun
    from fallback_tier.ports import LanguageModel

#: A server that says nothing of itself in this time is asked nothing more about itself.
_PROPS_TIMEOUT_S = 10

#: Its model's whole template is among what it says.
_PROPS_BYTES = 1_000_000

#: What llama-server says of itself that belongs beside a result; paths of the machine don't.
_PROPS = ("build_info", "model_ftype")

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,60}")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    parser.add_argument("--data", metavar="DIR", help="folder of the data set (to ask judges)")
    parser.add_argument("--golden", metavar="DIR", default="tests/golden/faithfulness")
    parser.add_argument("--report", metavar="DIR", default="docs/evaluation/faithfulness")
    parser.add_argument(
        "--judge-model", metavar="NAME", help="the model that judges; without: words only"
    )
    parser.add_argument(
        "--judge-base-url",
        metavar="URL",
        help="its server, where that is not the provider (key: FALLBACK_TIER_JUDGE_API_KEY)",
    )
    parser.add_argument("--judge-script", metavar="FILE", help="scripted answers instead (tests)")
    parser.add_argument(
        "--judge-name", metavar="NAME", help="folder of its raw answers (default: the model's name)"
    )
    parser.add_argument(
        "--judge-weights", metavar="FILE", help="its weights, for their SHA-256 beside the results"
    )
    parser.add_argument("--again", action="store_true", help="ask nobody: make the report again")
    parser.add_argument(
        "--check",
        action="store_true",
        help="ask nobody: does the report follow from golden set and raw answers? (no: 6)",
    )
    add(parser, "--json")


def faithfulness(arguments: argparse.Namespace) -> int:
    """Ask (or not: --check, --again), make the report; ENVIRONMENT where a check fails."""
    require_extra()
    from fallback_eval.faithfulness.report import FaithfulnessFolder

    folder = FaithfulnessFolder(Path(arguments.report), Path(arguments.golden))
    if arguments.check:
        return print_check(
            folder.faults(),
            as_json=arguments.json,
            if_none="the report follows from golden set and raw answers",
        )
    if not arguments.again:
        _ask(arguments, folder)
    return _publish(folder, as_json=arguments.json)


def _ask(arguments: argparse.Namespace, folder: "FaithfulnessFolder") -> None:
    from fallback_eval.faithfulness.data import load_cases
    from fallback_eval.faithfulness.golden import load_faithfulness
    from fallback_eval.faithfulness.results import RAW, AnswerFile, save_overlaps
    from fallback_eval.faithfulness.run import judge_by_model, judge_by_words

    if arguments.data is None:
        raise ConfigurationError(
            "To ask judges, --data names the folder of the data set.",
            next_step="Give --data DIR; or --again or --check, which need no data.",
        )
    model = _model(arguments)
    cases = load_cases(load_faithfulness(folder.golden), Path(arguments.data))
    save_overlaps(folder.path, judge_by_words(cases))
    if model is None:
        return
    answers = AnswerFile(folder.path / RAW / _name(arguments, model))
    with closing(model), StageProgress(Console(stderr=True)) as progress:
        judge_by_model(
            cases,
            model,
            _run(arguments, model),
            answers,
            lambda done, total: progress("judging", done, total),
        )


def _model(arguments: argparse.Namespace) -> "LanguageModel | None":
    """Raises ConfigurationError for a model without a key on the provider's own server."""
    from pydantic import SecretStr

    from fallback_tier.wiring import Configuration
    from fallback_tier.wiring.models import build_judge

    key = os.environ.get(JUDGE_KEY if arguments.judge_base_url else PROVIDER_KEY)
    return build_judge(
        Configuration(
            state_dir=Path(arguments.report),
            judge_model=arguments.judge_model,
            judge_base_url=arguments.judge_base_url,
            judge_api_key=SecretStr(key) if key else None,
            judge_script=Path(arguments.judge_script) if arguments.judge_script else None,
        )
    )


def _run(arguments: argparse.Namespace, model: "LanguageModel") -> "JudgeRun":
    from fallback_eval.faithfulness.results import JudgeRun

    return JudgeRun(
        model=model.model,
        provenance=model.provenance,
        server=_server(arguments.judge_base_url),
        weights=_weights(arguments.judge_weights),
        started=f"{datetime.now(UTC):%Y-%m-%d}",
    )


def _name(arguments: argparse.Namespace, model: "LanguageModel") -> str:
    name = arguments.judge_name or re.sub(r"[^a-z0-9._-]+", "-", model.model.lower()).strip("-.")
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"--judge-name {visible(name)!r} can't be a folder's name here.",
            next_step="Use lower-case letters, digits, dots and dashes.",
        )
    return str(name)


def _weights(path: str | None) -> str:
    if path is None:
        return "not given"
    try:
        with Path(path).open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        unreadable = ConfigurationError(
            f"--judge-weights {visible(path)!r} can't be read: {error.strerror}.",
            next_step="Give the file of the model's weights, or leave the option out.",
        )
        raise blamed(error, f"--judge-weights {visible(path)!r}", unreadable) from error
    return f"sha256 {digest}"


def _server(base_url: str | None) -> dict[str, str]:
    """What the server says of itself, as far as it does: a result is of a build, not of a name."""
    if base_url is None:
        return {"server": "the provider"}
    from fallback_tier.network import fetch

    url = base_url.rstrip("/") + "/props"
    try:
        reported = json.loads(fetch(url, max_bytes=_PROPS_BYTES, timeout_s=_PROPS_TIMEOUT_S))
    except (OSError, ValueError, RecursionError):
        return {}
    facts = reported if isinstance(reported, dict) else {}
    return {key: str(facts[key])[:100] for key in _PROPS if key in facts}


def _publish(folder: "FaithfulnessFolder", *, as_json: bool) -> int:
    analysis = folder.publish()
    if as_json:
        judges = {
            name: {"graded": one.graded, "claims": one.claims, "kappa": one.kappa}
            for name, one in analysis.figures.items()
        }
        print_json({"report": str(folder.path), "judges": judges})
        return exit_codes.OK
    for name, one in analysis.figures.items():
        kappa = "-" if one.kappa is None else f"{one.kappa:.3f}"
        sys.stdout.write(f"{visible(name)}: κ {kappa} over {one.graded} of {one.claims} claims\n")
    sys.stdout.write(f"report: {visible(str(folder.path / 'report.html'))}\n")
    return exit_codes.OK
