"""A service in a process of its own, and clients for it: for the tests, the campaigns, the load."""
