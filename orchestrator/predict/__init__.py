"""Time and cost before they are known: figures with a low end, a high end, and what they rest on.

measured.py: what earlier runs lead to expect; published.py: a guess from published speeds; formula.py and compiled.py:
bounds that no run can beat; extrapolate.py: measured runs continued to a data set of any size.
"""
