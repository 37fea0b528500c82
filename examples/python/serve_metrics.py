"""Serves the counters of this process to Prometheus, with only the standard library.

python examples/python/serve_metrics.py                 a small run, scraped once, then it ends
python examples/python/serve_metrics.py --port 9464     the same, served until Ctrl-C
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import evenkeel
import numpy as np

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Metrics(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path != "/metrics":
            self.send_error(404, "metrics are at /metrics")
            return
        body = evenkeel.metrics().encode()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Does not log scrapes."""


def serve(port: int) -> ThreadingHTTPServer:
    """Starts a thread that answers scrapes, from this machine only."""
    server = ThreadingHTTPServer(("127.0.0.1", port), Metrics)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0, help="default: any, and end after a scrape")
    asked = parser.parse_args()
    server = serve(asked.port)
    address = f"http://127.0.0.1:{server.server_address[1]}/metrics"
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/features.npy"
        np.save(path, np.random.default_rng(0).random((20_000, 64), dtype=np.float32))
        rows = evenkeel.open(path, budget="4MiB")
        loader = evenkeel.Loader(rows, batch_size=256, seed=1)
        for batch in loader:  # your training loop
            batch.mean()
        with urllib.request.urlopen(address) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(("evenkeel_read_bytes", "evenkeel_batch")):
                    print(line)
        if asked.port:
            print(f"serving {address}; Ctrl-C ends it", flush=True)
            try:
                while True:
                    time.sleep(1)
            except KeyboardInterrupt:
                pass
    server.shutdown()


if __name__ == "__main__":
    main()
