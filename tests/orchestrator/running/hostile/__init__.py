"""What a hostile VM says and leaves."""
