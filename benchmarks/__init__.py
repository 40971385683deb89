"""Measurements that compare two things in one run. `README.md` has the method."""
