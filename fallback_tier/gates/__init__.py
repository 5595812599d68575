"""Gates that all ecosystems share, the trees that they judge, and the summary of a failed attempt."""
