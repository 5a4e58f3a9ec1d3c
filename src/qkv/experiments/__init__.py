"""Runs side by side: what was trained, how well it does, and the page that shows it."""
