"""Trained runs as files that other programs can use."""
