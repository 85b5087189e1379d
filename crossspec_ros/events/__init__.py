"""From event packets to event images: codecs, clock, renderer, readers of recordings."""
