"""How results look on a terminal, as plain lines, and as JSON."""
