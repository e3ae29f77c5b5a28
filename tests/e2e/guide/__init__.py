"""What the pages of docs/guide show, run as it is written there."""
