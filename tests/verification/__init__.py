"""What finds faults by trying much: mutants, hostile inputs, struck and interrupted commands. Its tests run in `make verify`."""
