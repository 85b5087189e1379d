"""Draft heads of the published experiments."""
