"""Compares Evenkeel with its peers: same work, same data, memory as the kernel reports it."""
