"""Search: from a question to candidates, their order, and an answer."""
