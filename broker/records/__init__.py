"""Records: what both ports do with batches, from validation to acknowledgement."""
