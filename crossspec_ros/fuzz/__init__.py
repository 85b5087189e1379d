"""Seeded fuzzing of what comes from outside: files, messages of all types, streams of a server."""
