"""Modules that the gates of several ecosystems share; they use ports alone."""
