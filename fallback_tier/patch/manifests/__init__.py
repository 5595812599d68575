"""What a changed manifest or lock file says, read as the client reads it, and what a fix may say there."""
