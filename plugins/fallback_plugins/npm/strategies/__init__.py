"""npm's ladder (ADR-0016): a module for each strategy, and what they choose by."""
