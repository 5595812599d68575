"""What a page shows, made of what is on record: plain values, no HTTP."""
