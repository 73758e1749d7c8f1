"""Metrics and logs of the operator."""
