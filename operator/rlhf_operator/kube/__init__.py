"""The only place that talks to the API server."""
