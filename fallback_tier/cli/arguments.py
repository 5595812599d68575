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


def _share(text: str) -> float:
    from argparse import ArgumentTypeError

    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return value
