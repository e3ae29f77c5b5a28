"""Programs that run on a VM: standard library only, sent as text, never imported here."""
