"""Check whether a comparison is fair: what ought to be the same, and what makes a pairing invalid."""
