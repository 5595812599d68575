"""What a project's own files declare: read, and edited as text."""
