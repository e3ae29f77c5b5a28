"""The live view in the browser: shows the ledger, the logs and the records of this machine; stops and extends runs."""
