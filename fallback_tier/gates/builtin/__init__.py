"""The gates of every ecosystem, and what they judge by."""
