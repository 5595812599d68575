"""A fix in the audit trail: recorded, read back, resumed, answered."""
