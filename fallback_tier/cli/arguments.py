"""Options that several commands have."""

TYPE_CHECKING = False  # as in fallback_tier/__init__.py
if TYPE_CHECKING:
    import argparse

    Options = argparse.ArgumentParser | argparse._ArgumentGroup


def add_state(parser: "argparse.ArgumentParser") -> None:
    """``--state-dir``."""
    parser.add_argument(
        "--state-dir",
        metavar="DIR",
        help="audit trail, evidence and caches (default: the user's state folder)",
    )


def add_json(parser: "argparse.ArgumentParser") -> None:
    """``--json``."""
    parser.add_argument("--json", action="store_true", help="print one JSON object for machines")


def add_routing_floor(parser: "Options") -> None:
    """``--routing-floor``."""
    parser.add_argument(
        "--routing-floor",
        type=_share,
        metavar="SCORE",
        help="0 to 1: use no example unless the best one reaches it, by cosine (without vectors: by "
        "probability); default: a bound that refuses nothing known to be right",
    )


def add_budget(parser: "argparse.ArgumentParser") -> None:
    """Caps on what model calls may use, and what a model costs."""
    budget = parser.add_argument_group(
        "budget (none: no cap; a call that may pass a cap is not sent, and the fix can be resumed)"
    )
    budget.add_argument(
        "--max-usd", type=_dollars, metavar="N", help="estimated dollars that a fix may use"
    )
    budget.add_argument(
        "--max-usd-per-day",
        type=_dollars,
        metavar="N",
        help="for all fixes of a UTC day with this state folder",
    )
    budget.add_argument("--max-tokens", type=_count, metavar="N", help="tokens that a fix may use")
    budget.add_argument(
        "--max-tokens-per-day", type=_count, metavar="N", help="for all fixes of a UTC day"
    )
    budget.add_argument(
        "--price",
        metavar="IN:OUT",
        help="dollars per million tokens of a model that the price table does not have",
    )


def add_raise_budget(parser: "argparse.ArgumentParser") -> None:
    """What ``review raise-budget`` is told."""
    parser.add_argument("fix_id", metavar="FIX", help="a fix identifier, as `audit log` prints it")
    parser.add_argument("--by", required=True, metavar="NAME", help="who decides")
    parser.add_argument("--because", required=True, metavar="TEXT", help="why")
    parser.add_argument(
        "--max-usd", type=_dollars, metavar="N", help="estimated dollars that the fix may now use"
    )
    parser.add_argument(
        "--max-tokens", type=_count, metavar="N", help="tokens that the fix may now use"
    )


def _dollars(text: str) -> str:
    """As it was written: a cap is compared as a decimal, and read by people."""
    from argparse import ArgumentTypeError

    whole, _, part = text.partition(".")
    if not (text.isascii() and whole.isdigit() and (part.isdigit() or "." not in text)):
        raise ArgumentTypeError(f"{text!r} is not an amount of dollars, e.g. 2.50")
    return text


def _count(text: str) -> int:
    from argparse import ArgumentTypeError

    if not (text.isascii() and text.isdigit()):
        raise ArgumentTypeError(f"{text!r} is not a number of tokens")
    return int(text)


def _share(text: str) -> float:
    from argparse import ArgumentTypeError

    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return value
