"""gcloud: its commands, and its requests as plain HTTP."""
