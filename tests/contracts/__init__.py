"""Laws that a real thing and its fake both keep."""
