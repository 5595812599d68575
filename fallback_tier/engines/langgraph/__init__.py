"""An attempt, or a whole fix, as a graph for a host that has LangGraph (extra ``langgraph``; ADR-0088)."""
