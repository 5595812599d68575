"""The learned ranker: what it says of a candidate is what floors stand on."""
