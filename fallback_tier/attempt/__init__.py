"""The task of one attempt, and its steps without a model: the chain, and retrieval."""
