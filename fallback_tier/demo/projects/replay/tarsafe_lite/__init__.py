"""Unpack uploaded archives."""
