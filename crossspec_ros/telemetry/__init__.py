"""Where the time of a window went: spans, statistics, timelines."""
