"""Tests on a real Kubernetes, and the cluster that they run on."""
