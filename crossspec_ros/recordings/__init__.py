"""Recordings of every format as the messages that live cameras publish, and what is wrong with them."""
