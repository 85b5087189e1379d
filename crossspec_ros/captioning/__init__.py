"""From windows to captions: captioner, decoder, answer; recordings in code; loading and health."""
