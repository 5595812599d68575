"""A fix in the audit trail: recorded, read back, taken up again, answered."""
