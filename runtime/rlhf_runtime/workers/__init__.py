"""Compute flow: the workers that ship, one module per kind of role."""
