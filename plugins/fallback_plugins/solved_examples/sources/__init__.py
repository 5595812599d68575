"""Sources of records: files, releases, our own fixes."""
