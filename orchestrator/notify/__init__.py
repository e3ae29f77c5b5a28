"""Telling people what happened while they are away: what is due, and sending each of it."""
