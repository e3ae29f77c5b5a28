"""Which accelerator was worth it? Records side by side; nothing here prints or reads a clock."""
