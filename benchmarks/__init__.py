"""Speed compared with what others use. Each file prints a table of ratios, measured in one run, alternating."""
