"""The memory's file: records in versions, and what it is made of."""
