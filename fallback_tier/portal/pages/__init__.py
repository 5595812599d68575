"""Routes of the pages, a module each."""
