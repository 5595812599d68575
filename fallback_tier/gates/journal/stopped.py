"""What stops a fix on its way: it stays open in the trail, and the error says how it goes on."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def resumable(fix_id: str) -> Iterator[None]:
    """For a fix that is on record: whatever is raised, Ctrl-C among it, is noted how to resume it.

    The note is added to the error (PEP 678), so that each kind stays what it was. An error that names the
    command itself is left as it is.
    """
    command = f"`fallback-tier resume {fix_id}`"
    try:
        yield
    except BaseException as error:
        texts = (str(error), *getattr(error, "__notes__", ()))
        if not any(command in text for text in texts):
            error.add_note(f"{command} continues where it stopped.")
        raise
