"""Seeded, structure-aware fuzzing of what comes from outside: files, messages of all types, a server's streams."""
