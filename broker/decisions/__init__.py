"""De-duplication decisions: counted, remembered and streamed to subscribers."""
