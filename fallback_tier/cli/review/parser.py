"""The verbs of ``fallback-tier review``, and ``fallback-tier abandon``."""

import argparse

from fallback_tier.cli import arguments
from fallback_tier.cli.arguments import add_fix_id, add_raise_budget, finish, words


def add_verbs(parser: argparse.ArgumentParser) -> None:
    """list, show, approve, reject, reopen, raise-budget."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    _add_list(verbs)
    show = verbs.add_parser(
        "show",
        help="one question, with what is needed to answer it",
        description="The question that a fix ended with, each attempt in two lines, the last failure, "
        "the\nlast patch, and the commands that answer.",
    )
    _finish(show, "show")
    _add_approve(verbs)
    reject = verbs.add_parser(
        "reject",
        help="reject all patches of an escalated fix",
        description="Record that a person decided against a fix. It can't be reopened then.",
    )
    _finish(reject, "reject", signed=True)
    _add_reopen(verbs)
    raised = verbs.add_parser(
        "raise-budget",
        help="raise the cap of a fix that stopped at it",
        description="Record that a person raised a cap of a fix that stopped at it, and why. Then\n"
        "`fallback-tier resume FIX` continues where it stopped.",
    )
    add_raise_budget(raised)
    finish(raised, "review.command:raise_budget")


def _add_list(verbs: "arguments.Verbs") -> None:
    questions = verbs.add_parser(
        "list", help="escalated fixes that nobody has answered, newest first"
    )
    questions.add_argument("--all", action="store_true", help="also those that were answered")
    finish(questions, "review.command:show_list")


def _add_approve(verbs: "arguments.Verbs") -> None:
    approve = verbs.add_parser(
        "approve",
        help="accept a patch of an escalated fix as it is",
        description="Record that a person accepts a patch that was not proved, and print it, for\n"
        "`git apply`. The record says approved by, never verified.",
    )
    approve.add_argument(
        "--patch",
        metavar="DIGEST",
        help="which one, by the beginning of its digest (default: the last that was proposed)",
    )
    approve.add_argument("--output", metavar="FILE", help="write the patch to FILE, print nothing")
    _finish(approve, "approve", signed=True)


def _add_reopen(verbs: "arguments.Verbs") -> None:
    reopen = verbs.add_parser(
        "reopen",
        help="try an escalated fix again, or only its gates",
        description="Record that a person opens a new gate transition, linked to the one that ended. It\n"
        "starts with the last failure, without retrieval, and has three attempts of its own;\n"
        "with --gates-again it runs all gates on a patch that is on record, and no model.\n"
        "`fallback-tier resume FIX` runs it.",
    )
    reopen.add_argument(
        "--gates-again",
        action="store_true",
        help="after a false failure (a flaky machine, a missing tool): no new attempt, only the gates, "
        "from scratch; if they pass, the fix ends as it would have",
    )
    reopen.add_argument(
        "--patch",
        metavar="DIGEST",
        help="with --gates-again: on which patch of the fix, by the beginning of its digest "
        "(default: the one asked about)",
    )
    _finish(reopen, "reopen", signed=True)


def _finish(parser: argparse.ArgumentParser, handler: str, *, signed: bool = False) -> None:
    add_fix_id(parser, "review list")
    finish(parser, f"review.command:{handler}", signed=signed)


def add_abandon(parser: argparse.ArgumentParser) -> None:
    """``abandon``: which fix ends, who says so, and why."""
    parser.description = (
        "End a fix for good that was interrupted, or reopened and not resumed, and that nobody\n"
        "is to continue: it is listed as abandoned, can't be resumed, and its working files are\n"
        "removed. Its record and its evidence stay. A fix that was escalated is ended with\n"
        "`review reject`."
    )
    add_fix_id(parser, "audit log")
    parser.add_argument("--reason", required=True, type=words, metavar="TEXT", help="why")
    parser.add_argument(
        "--by", type=words, metavar="NAME", help="who decides (default: the user's name)"
    )
    finish(parser, "review.command:abandon")
