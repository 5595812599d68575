"""``fallback-tier mcp``: tools for coding agents, over the Model Context Protocol (ADR-0137)."""
