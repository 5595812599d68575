"""The built-in gates of every ecosystem, and the proof that one of them runs."""
