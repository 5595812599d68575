"""What the measures share: rows and their page, halves, clones, commands and their ends."""
