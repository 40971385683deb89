"""Tests of every room; they mirror the packages file for file."""
