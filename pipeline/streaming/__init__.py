"""Parts that the mirror and the ingest share: a run that can be stopped, figures, progress line, metrics."""
