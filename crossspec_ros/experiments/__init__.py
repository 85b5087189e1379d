"""The seven experiments that the research behind this project proposed, and the report of what came out."""
