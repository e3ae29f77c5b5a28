"""Sends requests as another user of this machine would: by a plain Python that knows addresses and no secret.

Run as a program it reads a JSON list of [method, URL, headers, body] and prints a list of [status, body].
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request


def main() -> None:
    """Status 0: no reply."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    replies = []
    for method, url, headers, body in json.load(sys.stdin):
        request = urllib.request.Request(url, body.encode() if body else None, headers, method=method)
        try:
            with direct.open(request, timeout=10) as reply:
                replies.append([reply.status, reply.read().decode("utf-8", "replace")])
        except urllib.error.HTTPError as error:
            replies.append([error.code, error.read().decode("utf-8", "replace")])
        except OSError as error:
            replies.append([0, repr(error)])
    json.dump(replies, sys.stdout)


if __name__ == "__main__":
    main()
