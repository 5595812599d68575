"""Retry policies over small vulnerable programs: the same model, gates and budget, another second attempt."""
