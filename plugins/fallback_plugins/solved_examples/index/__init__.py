"""Search indexes of a store: vectors and posting lists, built in batches."""
