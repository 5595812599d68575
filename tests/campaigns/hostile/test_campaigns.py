"""`make hostile` runs every campaign that there is."""

from pathlib import Path

HERE = Path(__file__).parent


def test_every_campaign_is_run() -> None:
    makefile = (HERE.parents[2] / "Makefile").read_text()
    campaigns = {
        place.stem for place in HERE.glob("*.py") if '__name__ == "__main__"' in place.read_text()
    } - {Path(__file__).stem}
    assert {
        name for name in campaigns if f"tests.campaigns.hostile.{name}" not in makefile
    } == set()
    assert len(campaigns) >= 3
