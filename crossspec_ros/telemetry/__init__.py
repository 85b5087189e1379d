"""Measures of a running process: spans, statistics, timelines, memory, and the pulse of its threads."""
