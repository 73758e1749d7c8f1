"""The client of a running job's controller."""
