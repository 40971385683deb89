"""Common parts of all streams: a run that can be stopped, figures, progress line, metrics."""
