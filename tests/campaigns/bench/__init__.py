"""Benchmarks: each row pairs ours with a peer, or with a limit, in one run (``make bench``)."""
