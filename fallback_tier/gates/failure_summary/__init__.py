"""From a failed gate's log to the next attempt's context."""
