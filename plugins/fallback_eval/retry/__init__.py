"""Retry policies over small vulnerable programs, with the same model, gates and budget."""
