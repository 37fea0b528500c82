"""A web server as it is in the world: HTTP, and HTTP/2 over TLS with a certificate of our own."""

import os
import shutil
import subprocess

import numpy as np
import pytest
from remote_help import started

import evenkeel

ROWS = np.arange(40_000 * 16, dtype=np.float32).reshape(-1, 16)

CONFIG = """
daemon off; worker_processes 1; master_process off; pid {at}/pid; error_log {at}/log crit;
events {{ worker_connections 512; }}
http {{
  access_log off; root {at}/data;
  client_body_temp_path {at}/1; proxy_temp_path {at}/2; fastcgi_temp_path {at}/3;
  uwsgi_temp_path {at}/4; scgi_temp_path {at}/5;
  server {{
    listen 127.0.0.1:{plain};
    listen 127.0.0.1:{tls} ssl http2;
    ssl_certificate {at}/cert.pem; ssl_certificate_key {at}/key.pem;
  }}
}}
"""


@pytest.fixture(scope="module")
def nginx(tmp_path_factory):
    tool = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if tool is None or shutil.which("openssl") is None:
        pytest.skip("nginx is not installed")
    at = tmp_path_factory.mktemp("nginx")
    (at / "data").mkdir()
    np.save(at / "data/rows.npy", ROWS)
    for folder in (at, *at.parents[:2]):  # its workers may run as another user
        os.chmod(folder, 0o755)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        + ["-nodes", "-days", "2", "-subj", "/CN=localhost"]
        + ["-addext", "subjectAltName=IP:127.0.0.1"]
        + ["-keyout", str(at / "key.pem"), "-out", str(at / "cert.pem")],
        check=True,
        capture_output=True,
    )

    def command(plain, tls):
        (at / "nginx.conf").write_text(CONFIG.format(at=at, plain=plain, tls=tls))
        return [tool, "-p", str(at), "-c", str(at / "nginx.conf")]

    server, plain, tls = started(command, ports=2)
    try:
        yield plain, tls, at
    finally:
        server.kill()
        server.wait()


def test_rows_come_from_a_web_server(nginx):
    with evenkeel.open(f"http://127.0.0.1:{nginx[0]}/rows.npy", budget="16MiB") as a:
        wanted = np.random.default_rng(2).integers(0, len(ROWS), 3000)
        np.testing.assert_array_equal(a.take(wanted), ROWS[wanted])
        np.testing.assert_array_equal(np.concatenate(list(a.batches(5000))), ROWS)
        assert a.stats()["retries"] == 0


def test_a_file_that_is_written_anew_is_an_error(nginx):
    np.save(nginx[2] / "data/other.npy", ROWS)
    url = f"http://127.0.0.1:{nginx[0]}/other.npy"
    with evenkeel.open(url, budget="16MiB", cache=False) as a:
        a[5]
        np.save(nginx[2] / "data/other.npy", ROWS[:-1])
        with pytest.raises(ValueError, match="changed since it was opened"):
            a[30_000]


def test_certificates_are_checked(nginx, monkeypatch):
    url = f"https://127.0.0.1:{nginx[1]}/rows.npy"
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with pytest.raises(OSError, match="certificate"):
        evenkeel.open(url)
    monkeypatch.setenv("SSL_CERT_FILE", str(nginx[2] / "cert.pem"))
    with evenkeel.open(url, budget="16MiB") as a:
        np.testing.assert_array_equal(a[20_000:30_000], ROWS[20_000:30_000])
