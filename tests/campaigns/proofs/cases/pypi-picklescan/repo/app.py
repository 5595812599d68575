"""May a model that somebody uploaded be loaded?"""

import io

from picklescan.scanner import scan_pickle_bytes


def is_safe(data):
    return scan_pickle_bytes(io.BytesIO(data), "model.pkl").infected_files == 0
