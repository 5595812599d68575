"""What one attempt works on, and its steps that ask no model: the chain, and retrieval."""
