"""The options that say which models are asked, and how."""

import argparse

from fallback_tier.cli.arguments import add_routing_floor

#: Those of ``repo.Effort`` and ``repo.AnswerForm``, which asking for help does not load.
EFFORTS = ("low", "medium", "high", "xhigh", "max")
ANSWER_FORMS = ("json", "blocks")


def add_model(parser: argparse.ArgumentParser) -> None:
    """The author, the memory, the judge, the strategy."""
    model = parser.add_argument_group("model (none: recipes and examples only)")
    model.add_argument(
        "--model",
        metavar="NAME",
        help="a Messages API model (key: ANTHROPIC_API_KEY), or local:FILE.gguf, which an installed "
        "llama-server serves for the length of the run",
    )
    model.add_argument(
        "--base-url",
        metavar="URL",
        help="any server that speaks the Messages API; key: FALLBACK_TIER_API_KEY",
    )
    model.add_argument(
        "--script", metavar="FILE", help="scripted answers instead of a model (tests)"
    )
    model.add_argument("--examples", metavar="DB", help="an example store (`examples ingest`)")
    add_routing_floor(model)
    model.add_argument(
        "--strategy",
        choices=("standard", "self-rag"),
        default="standard",
        help="how the first draft comes about: one answer, or a search over single edits that "
        "are criticised one by one (more calls)",
    )
    model.add_argument(
        "--beam-width",
        type=int,
        default=1,
        metavar="N",
        help="self-rag: drafts kept after each edit (1 is greedy; at most 4)",
    )
    model.add_argument(
        "--code-room",
        type=int,
        metavar="KB",
        help="how much of a package's own code a prompt shows if that code is at fault: what fits the "
        "model's window (default: 192, some 42,000 tokens; with local:FILE 12)",
    )
    model.add_argument(
        "--max-output-tokens",
        type=int,
        metavar="N",
        help="tokens of one answer, including its thinking (default: 16000; with local:FILE 2048); booked "
        "before a call is sent",
    )
    model.add_argument(
        "--effort",
        choices=EFFORTS,
        help="how much the model should think, if its server supports that (default: the model's own)",
    )
    model.add_argument(
        "--answer-form",
        choices=ANSWER_FORMS,
        help="how the model writes its plan: one JSON object, or plain text with search/replace blocks, "
        "for models that do not write JSON well (default: json; with local:FILE blocks; its server holds "
        "it to either by a grammar)",
    )
    model.add_argument(
        "--recall-attempts",
        action="store_true",
        help="also show a retry, in a line each, how the attempts before the last one failed (default: "
        "only the last failure)",
    )
    model.add_argument(
        "--keep-prompts",
        action="store_true",
        help="keep every prompt as private evidence (default: its digest only)",
    )
    judge = parser.add_argument_group("judge (none: grounding is not evaluated)")
    judge.add_argument(
        "--judge-model",
        metavar="NAME",
        help="a model that judges whether advisory and code support the plan; best not the author's",
    )
    judge.add_argument(
        "--judge-base-url",
        metavar="URL",
        help="the judge's server; key: FALLBACK_TIER_JUDGE_API_KEY (without: the provider's)",
    )
    judge.add_argument(
        "--judge-script", metavar="FILE", help="scripted judgements instead of a model (tests)"
    )
