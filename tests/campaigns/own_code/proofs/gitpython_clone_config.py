"""An option of a clone that can run programs is refused, however it is handed over."""

from pathlib import Path

import pytest
from git import Repo
from git.exc import UnsafeOptionError


@pytest.mark.parametrize("option", ["config", "c", "upload-pack", "u"])
def test_clone_refuses_unsafe_keyword(option: str, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    Repo.init(tmp_path / "source").close()
    value = "protocol.ext.allow=always" if option in {"config", "c"} else f"touch {marker}"
    with pytest.raises(UnsafeOptionError):
        Repo.clone_from(str(tmp_path / "source"), str(tmp_path / "copy"), **{option: value})
    assert not marker.exists(), "a clone ran the program that its option named"
