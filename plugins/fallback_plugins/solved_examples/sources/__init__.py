"""Where records come from: files, releases, our own fixes."""
