"""Measurements of our decoder and of others."""
