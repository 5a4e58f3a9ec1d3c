"""A hub as one meets them behind a mirror: a path in front, no HEAD, redirects. On the loopback address only."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hub:
    """Serves `files` (path in the data set to content) as the data set me/tiny; `asked` are the paths asked for."""

    def __init__(self, files, commit="0" * 40):
        self.files, self.commit, self.asked = files, commit, []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self):
                self.send_response(405)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self):
                hub.asked.append(self.path)
                code, body, *headers = hub.answer(self.path)
                self.send(code, body, **(headers[0] if headers else {}))

            def send(self, code, body, **headers):
                self.send_response(code)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}/hf/"

    def answer(self, path):
        if path.startswith("/hf/api/datasets/me/tiny/revision/"):
            listing = {"sha": self.commit, "siblings": [{"rfilename": name} for name in self.files]}
            return 200, json.dumps(listing).encode()
        start = f"/hf/datasets/me/tiny/resolve/{self.commit}/"
        if path.startswith(start) and path.removeprefix(start) in self.files:
            return 302, b"", {"Location": f"/store/{path.removeprefix(start)}"}
        if path.startswith("/store/"):
            return 200, self.files[path.removeprefix("/store/")]
        return 404, b"no"

    def close(self):
        self.server.shutdown()
        self.server.server_close()
