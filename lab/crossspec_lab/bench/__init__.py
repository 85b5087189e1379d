"""Measurements of ours beside others."""
