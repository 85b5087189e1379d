"""Synthetic driving world, datasets, and training of the tiny models."""
