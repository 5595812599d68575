"""The HTTP service: an orchestrator submits fixes and follows them, people decide (docs/service.md)."""
