"""Pure values and rules. No I/O but the catalog's two files, no clock."""
