"""What a store is searched by: vectors and posting lists, built chunk by chunk."""
