"""What a person reads of a recipe's result."""

from io import StringIO

from rich.console import Console

from fallback_tier.cli.remediation import show_remediation
from tests.unit.handover.verified import remediation


def shown(**of_move: object) -> str:
    made = remediation()
    moves = tuple(move.model_copy(update=of_move) for move in made.moves)
    file = StringIO()
    notes = ("a.txt was resolved on 2026-01-02.",)
    show_remediation(
        Console(file=file, width=200), made.model_copy(update={"moves": moves, "notes": notes})
    )
    return file.getvalue()


def test_a_range_that_admits_safe_versions_too_is_called_so() -> None:
    sentence = "the range admits affected and safe versions, and no lock chooses one"
    assert sentence in shown(range_admits=True)
    assert sentence not in shown()
    assert "note: a.txt was resolved on 2026-01-02." in shown()
