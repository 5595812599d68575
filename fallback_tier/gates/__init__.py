"""Proof, not hope: the gate runner, its sandbox, and the gates every ecosystem shares."""
