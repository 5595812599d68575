"""The service's operations, in plain Python, for routes and pages, which only translate."""
