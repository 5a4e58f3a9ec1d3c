"""Search for the best outputs of any model that can say its next symbol: greedy and beam search."""
