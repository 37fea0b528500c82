"""Evenkeel beside its peers: the same work, the same data, memory by the kernel's numbers."""
