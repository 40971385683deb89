"""Tests of the benchmarks that guard what a request costs."""
