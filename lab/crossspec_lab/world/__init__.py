"""Synthetic driving world."""
