"""An uploaded file's name has no parts of a path, not of one as Windows writes it either."""

import asyncio
from io import BytesIO

import pytest
from nicegui.elements.upload_files import create_file_upload
from starlette.datastructures import UploadFile


@pytest.mark.parametrize("sent", ["..\\..\\evil.exe", "../..\\evil.exe", "C:\\here\\evil.exe"])
def test_name_of_upload_has_no_path(sent: str) -> None:
    upload = UploadFile(BytesIO(b"text"), filename=sent)
    taken = asyncio.run(create_file_upload(upload))
    assert taken.name == "evil.exe", f"an upload sent as {sent} is called {taken.name}"
