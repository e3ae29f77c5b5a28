"""The plots of a report, as inline SVG."""
