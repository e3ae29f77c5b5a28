"""How the local cloud is reached: HTTP, TLS, proxy, messages and errors as Google writes them."""
