"""npm's ladder (ADR-0016): its strategies in ``all_strategies``, and how they choose versions."""
