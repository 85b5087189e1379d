"""Recordings captioned in code, by the same objects as in the nodes, without topics or time."""
