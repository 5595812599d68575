"""The memory's file: versions of records, and the manifest of what it is made of."""
