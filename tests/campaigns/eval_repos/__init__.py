"""Whole runs of ``fix`` with gates over repositories of every kind, beside what peers do to them."""
