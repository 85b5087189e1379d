"""Learned draft heads: one idea a file; each learns from paired states and drafts as a proposer."""
