"""Tests of `orchestrator.money` and `orchestrator.ledger`."""
