"""Routes, errors, sign-in: translation between HTTP and what the service does (``operations``)."""
