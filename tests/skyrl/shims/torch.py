"""Stands in for torch in a SkyRL server with the JAX backend, which imports it but uses it for images only."""
