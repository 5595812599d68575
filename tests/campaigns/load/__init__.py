"""Load on a real service, from a second process: rates, latencies, memory, followers."""
