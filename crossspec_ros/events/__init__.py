"""From event packets to event images: codecs, clock, renderer, dv cameras."""
