"""Fuzzers, kills, faults and soak runs of real processes."""
