"""Side by side with peers: each script prints one table and writes one JSON file. See README.md."""
