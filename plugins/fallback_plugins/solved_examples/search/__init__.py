"""From a question to an answer: candidates, their order, what of it is kept."""
