"""A small identity provider for tests: a token endpoint and a key set, by HTTP on the loopback."""

import base64
import contextlib
import http.server
import json
import threading
import time
import urllib.parse

from tests.bearer_tokens import Issuer

SECRETS = {"alice": "wonder land/+&", "bob": "builder", "carol": "singer"}
FORGED = "/forged"
"""At this path tokens are signed by another's key in the issuer's name."""


class TokenServer:
    """Gives tokens to who knows a secret, and its keys to everybody."""

    def __init__(self, issuer=None, *, seconds=3600):
        self.issuer, self.seconds = issuer or Issuer(), seconds
        self.asked = []
        """Paths, in order; of the token endpoint with the form."""
        self.is_away = threading.Event()
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                server.asked.append(self.path)
                self.answer(200, server.issuer.key_set())

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                server.asked.append(f"{self.path}?{body}")
                pair = base64.b64decode(self.headers["Authorization"].removeprefix("Basic "))
                name, _, secret = pair.decode().partition(":")
                if SECRETS.get(name) != secret:
                    self.answer(401, json.dumps({"error": "invalid_client"}))
                    return
                scope = urllib.parse.parse_qs(body).get("scope", [None])[0]
                self.answer(200, json.dumps(server.grant(name, scope, self.path == FORGED)))

            def answer(self, status, text):
                if server.is_away.is_set():
                    status, text = 503, ""
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(text.encode())

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def grant(self, name, scope=None, is_forged=False):
        """Return the answer of the token endpoint."""
        ends = int(time.time()) + self.seconds
        claims = {"sub": name, "scope": scope, "exp": ends, "iat": ends - self.seconds}
        token = self.issuer.token(kid="forged" if is_forged else None, **claims)
        return {"access_token": token, "token_type": "Bearer", "expires_in": self.seconds}

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self._server.shutdown()
        self._server.server_close()
        self._thread.join()
