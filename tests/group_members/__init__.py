"""Real clients of every language as members of groups, while members and coordinators are killed and paused (README.md)."""
