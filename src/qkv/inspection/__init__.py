"""Looking inside a model while it runs: what it attends to, the shape of every step, and pictures of both."""
