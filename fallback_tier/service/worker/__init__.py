"""One process a fix (ADR-0080): what it is given, what it does, who starts and ends it."""
