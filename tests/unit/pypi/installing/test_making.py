"""What is installed in an environment is read from its metadata, and no more of that than is asked for."""

from importlib.metadata import distributions
from pathlib import Path

from fallback_plugins.pypi.installing.environment import distributions_in

HEADERS = """Metadata-Version: 2.1
Name: Left.Pad
Version: {version}
Requires-Dist: right (>=1)
Requires-Dist: pytest ; extra == 'test'
Summary: a line,
  and another
"""
DESCRIPTION = "\nName: other\nVersion: 9\nRequires-Dist: nothing\n"


def environment(place: Path, version: str = "1.0") -> Path:
    folder = place / "lib" / "python3.11" / "site-packages" / f"left_pad-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(HEADERS.format(version=version) + DESCRIPTION)
    (folder / "RECORD").write_text("left/__init__.py,,\nleft/pad.py,,\n")
    (folder / "namespace_packages.txt").write_text("left\n")
    return place


def test_it_says_what_the_standard_library_reads(tmp_path: Path) -> None:
    (ours,) = distributions_in(environment(tmp_path))
    (theirs,) = distributions(path=[str(tmp_path / "lib" / "python3.11" / "site-packages")])
    assert (ours.version, ours.requires) == (theirs.version, theirs.requires)
    assert ours.metadata["Name"] == "Left.Pad" == theirs.metadata["Name"]
    assert ours.metadata["Summary"] == theirs.metadata["Summary"]
    assert list(map(str, ours.files or ())) == list(map(str, theirs.files or ()))
    assert ours.read_text("namespace_packages.txt") == "left\n"
    assert ours.locate_file("left") == theirs.locate_file("left")


def test_another_release_is_seen_when_it_is_looked_for_again(tmp_path: Path) -> None:
    (first,) = distributions_in(environment(tmp_path))
    assert first.version == "1.0"
    place = tmp_path / "lib" / "python3.11" / "site-packages"
    (place / "left_pad-1.0.dist-info").rename(tmp_path / "gone")
    environment(tmp_path, "1.1")
    (second,) = distributions_in(tmp_path)
    assert (first.version, second.version) == ("1.0", "1.1")


def test_an_environment_without_packages_has_none(tmp_path: Path) -> None:
    assert list(distributions_in(tmp_path)) == []
