"""Summaries of failed gates' logs for the next attempt's context."""
