"""The durable, bounded queue of submitted fixes (ADR-0080)."""
