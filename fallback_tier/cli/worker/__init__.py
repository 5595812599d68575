"""``fallback-tier worker``: this machine takes fixes of campaigns on Temporal."""
