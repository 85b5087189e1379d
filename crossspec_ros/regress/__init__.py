"""Comparison of a recording's captions, replayed in code, with goldens."""
