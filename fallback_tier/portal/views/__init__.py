"""Content of pages, made from the audit trail: plain values, no HTTP."""
