"""Decoders of other projects."""
