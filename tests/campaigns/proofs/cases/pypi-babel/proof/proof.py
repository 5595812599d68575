"""PYSEC-2021-421: a language named ../… has a pickle of anybody's loaded, and so code run."""

import os
import pickle
import shutil
import tempfile
from pathlib import Path

import babel.localedata
from app import language_name


class Payload:
    def __reduce__(self):
        return eval, ("__import__('os').environ.setdefault('INJECTED', '1')",)


# No underscore in its name: that would be a territory.
folder = Path(tempfile.gettempdir(), f"proof{os.getpid()}")
folder.mkdir()
(folder / "x.dat").write_bytes(pickle.dumps(Payload()))
data = Path(babel.localedata.__file__).parent / "locale-data"
try:
    language_name(os.path.relpath(folder / "x", data))
except Exception as error:
    print("refused:", repr(error)[:80])
finally:
    shutil.rmtree(folder)
if "INJECTED" in os.environ:
    raise SystemExit("a file from outside of the folder ran as code")
