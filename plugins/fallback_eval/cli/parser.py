"""The verbs of ``fallback-tier eval``. Made when the command is given: others don't pay."""

from fallback_tier.cli.arguments import add
from fallback_tier.cli.exit_codes import epilog

TYPE_CHECKING = False  # as in fallback_tier/__init__.py
if TYPE_CHECKING:
    import argparse


def add_verbs(evaluate: "argparse.ArgumentParser") -> None:
    """What can be evaluated."""
    verbs = evaluate.add_subparsers(dest="verb", metavar="VERB", required=True)
    retrieval = verbs.add_parser(
        "retrieval",
        help="the solved-example memory against a golden set",
        description="Ask every variant of the retrieval every query of a golden set, keep the raw\n"
        "answers, and make the report from them: figures with intervals, paired tests,\n"
        "a table that justifies every default. Needs the extra `eval`; without the\n"
        "extra `embeddings` only lexical variants run, and the report says so.",
        epilog=epilog(),
    )
    _add_sources(retrieval)
    _add_run(retrieval)
    add(retrieval, "--json")
    retrieval.set_defaults(handler="fallback_eval.cli.retrieval:retrieval")
    _add_fixes(verbs)
    _add_faithfulness(verbs)
    _add_retry(verbs)


def _add_retry(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    from fallback_eval.cli.retry import add_options

    retry = verbs.add_parser(
        "retry",
        help="what follows a failed attempt: policies over small programs",
        description="Run every task with every retry policy and seed, keep each answer by its request (a\n"
        "stopped run goes on where it was, and everything replays without weights), and make the\n"
        "report from the rows. Prints what is due and its cost first.",
        epilog=epilog(),
    )
    add_options(retry)
    add(retry, "--json")
    retry.set_defaults(handler="fallback_eval.cli.retry:retry")


def _add_faithfulness(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    from fallback_eval.cli.faithfulness import add_options

    faithfulness = verbs.add_parser(
        "faithfulness",
        help="the judge of plans against labelled claims",
        description="Ask a judge about claims of plans whose support was labelled by reading, keep its\n"
        "answers (a stopped run goes on where it was), and make the report from them:\n"
        "agreement with intervals, by kind of claim, against k, beside judges without a model.",
        epilog=epilog(),
    )
    add_options(faithfulness)
    faithfulness.set_defaults(handler="fallback_eval.cli.faithfulness:faithfulness")


def _add_fixes(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    from fallback_eval.cli.fixes import add_options

    fixes = verbs.add_parser(
        "fixes",
        help="a model over vulnerable mini-projects: what it fixes, at what cost",
        description="Fix every mini-project as `fallback-tier fix` would, with a proof of its flaw as one\n"
        "more gate; keep each run with its transcript as soon as it ends (a stopped run goes\n"
        "on where it was), and make the report from them.",
        epilog=epilog(),
    )
    add_options(fixes)
    add(fixes, "--json")
    fixes.set_defaults(handler="fallback_eval.cli.fixes:fixes")


def _add_sources(parser: "argparse.ArgumentParser") -> None:
    parser.add_argument("--data", metavar="DIR", help="folder of the data set (to run variants)")
    parser.add_argument(
        "--golden",
        metavar="DIR",
        default="tests/golden/retrieval",
        help="folder of queries.jsonl and judgements.jsonl (default: %(default)s)",
    )
    parser.add_argument(
        "--report",
        metavar="DIR",
        default="docs/evaluation/retrieval",
        help="where raw results and report are kept (default: %(default)s)",
    )


def _add_run(parser: "argparse.ArgumentParser") -> None:
    parser.add_argument(
        "--check",
        action="store_true",
        help="run nothing: does the report follow from code, golden set and raw results? (no: 6)",
    )
    parser.add_argument(
        "--again", action="store_true", help="run nothing: make the report again from raw results"
    )
    parser.add_argument(
        "--unjudged",
        action="store_true",
        help="run nothing: print what variants of the dev split rank high and nobody judged, as JSON lines",
    )
    parser.add_argument(
        "--reserved",
        action="store_true",
        help="ask the reserved queries, for the final table (each look is noted)",
    )
    parser.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        default=[],
        help="one variant; may be given again",
    )
    parser.add_argument(
        "--repeats", type=int, default=3, metavar="N", help="askings of a query (default: 3)"
    )
    parser.add_argument(
        "--cross-encoder",
        nargs=2,
        metavar=("MODEL", "TOKENIZER"),
        help="weights (ONNX) and tokenizer.json of a cross-encoder to try",
    )
