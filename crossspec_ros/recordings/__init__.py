"""Recordings of every format as the messages that live cameras publish, and their faults."""
