"""What runs on a VM: programs of the standard library alone, given to it as text, never imported here."""
