"""HTTP, TLS and the proxy; routes, messages and errors in Google's form."""
