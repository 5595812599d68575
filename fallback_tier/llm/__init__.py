"""The model's part of an attempt: from a question to a supported plan."""
