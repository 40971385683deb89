"""Laws that both a real implementation and its fake keep."""
