"""Google's own descriptions of its APIs, as the judge of what our adapters send and the local cloud replies."""
