"""Squares, computed side by side; the configuration says how many are queued."""

from joblib import Parallel, delayed


def squares(numbers, queued="2*n_jobs"):
    run = Parallel(n_jobs=2, backend="threading", pre_dispatch=queued)
    return run(delayed(pow)(number, 2) for number in numbers)
