"""The files of an attempt: a base, layers over it, and who may use them."""
