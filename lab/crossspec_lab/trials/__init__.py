"""Fuzzers, and soak runs of real processes with faults."""
