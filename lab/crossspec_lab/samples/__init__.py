"""Small valid recordings of every format, for fuzzers and tests."""
