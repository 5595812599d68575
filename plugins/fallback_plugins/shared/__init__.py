"""Modules that the plugins of several ecosystems share."""
