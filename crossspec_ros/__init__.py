"""Streaming captions from an event camera and an RGB camera with cross-modal speculative decoding."""
