"""Configuration: names, values, where they come from, and what topics may override."""
