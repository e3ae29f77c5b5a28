"""The account behind the project, its service accounts, permissions and tokens; every call is checked here."""
