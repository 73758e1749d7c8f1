"""Pure: the Kubernetes objects of a job, rendered from its types."""
