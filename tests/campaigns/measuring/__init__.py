"""What measures of the whole tool share: clones, commands and their ends, pages."""
