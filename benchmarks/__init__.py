"""How fast is it, against what others use? Each file prints a table of ratios, measured in one run, alternating."""
