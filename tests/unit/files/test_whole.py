"""A file is there whole, or as it was."""

from pathlib import Path

import pytest

from fallback_tier.files.whole import write_whole


def test_it_replaces_what_was_there_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    place = tmp_path / "kept.json"
    place.write_bytes(b"before")
    write_whole(place, b"after")
    assert place.read_bytes() == b"after"
    assert [*tmp_path.iterdir()] == [place]


def test_a_name_may_be_as_long_as_names_can_be(tmp_path: Path) -> None:
    place = tmp_path / ("n" * 255)
    write_whole(place, b"x")
    assert place.read_bytes() == b"x"


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_what_does_not_come_to_its_end_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    place = tmp_path / "kept.json"
    place.write_bytes(b"before")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(error):
        write_whole(place, b"after")
    assert place.read_bytes() == b"before"
    assert [*tmp_path.iterdir()] == [place]
