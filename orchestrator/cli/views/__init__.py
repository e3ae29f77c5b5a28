"""Views of results: for a terminal, as plain lines, and as JSON."""
