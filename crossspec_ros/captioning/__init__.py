"""From windows to captions: decoder, answer, worker; recordings in code; settings and health."""
