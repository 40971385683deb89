"""State that is kept in an internal topic: replayed when its partition is led, appended to, dropped."""
