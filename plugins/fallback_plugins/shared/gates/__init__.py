"""What the gates of several ecosystems have in common, over ports alone."""
