"""HTTP routes, errors and sign-in: they translate between HTTP and the service's ``operations``."""
