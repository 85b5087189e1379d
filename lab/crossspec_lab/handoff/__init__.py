"""Feature hand-off: event features in place of frames, lossy."""
