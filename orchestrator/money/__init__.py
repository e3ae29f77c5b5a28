"""Admission, costs and prices."""
