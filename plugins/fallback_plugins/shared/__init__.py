"""What the plugins of several ecosystems have in common."""
