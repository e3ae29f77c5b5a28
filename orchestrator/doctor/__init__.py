"""Checks of the account, and the live check of the cloud."""
