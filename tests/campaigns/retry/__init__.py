"""Which retry policy fixes more at equal cost? (ADR-0011, ADR-0134)"""
