"""Keys for s3:// that a service hands out: to pods, containers and machines."""

import datetime
import json
import os
import threading
import urllib.parse

import numpy as np
import pytest
from remote_help import ObjectServer, npy

import evenkeel

ROWS = np.arange(500 * 16, dtype=np.float32).reshape(500, 16)


class Services(ObjectServer):
    """A bucket, and the services that provide keys. Each answer has different keys."""

    def __init__(self):
        super().__init__({"/bucket/rows.npy": npy(ROWS)})
        self.given = 0
        self.role = f"arn:aws:iam::123456789012:role/reader{self.port}"
        self.lives_s = 3600
        self.refuses = False

    def keys(self):
        self.given += 1
        expires = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(
            seconds=self.lives_s
        )
        return {
            "AccessKeyId": f"ASIA{self.given}",
            "SecretAccessKey": "never/shown",
            "Token": f"session{self.given}",
            "Expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def respond(self, handler, path, query):
        if path.startswith("/bucket"):
            return super().respond(handler, path, query)
        if self.refuses:
            return (
                403,
                {},
                b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>Not you.</Message>"
                b"</Error></ErrorResponse>",
            )
        if path == "/latest/api/token":
            return 200, {}, b"machine-token"
        if path == "/latest/meta-data/iam/security-credentials/":
            return 200, {}, b"some-role"
        if handler.command == "POST":
            keys = self.keys()
            keys["SessionToken"] = keys.pop("Token")
            text = "".join(f"<{name}>{value}</{name}>" for name, value in keys.items())
            name = "AssumeRoleWithWebIdentity"
            body = f"<{name}Response><{name}Result><Credentials>{text}</Credentials>"
            return 200, {}, f"{body}</{name}Result></{name}Response>".encode()
        return 200, {}, json.dumps({"Code": "Success", **self.keys()}).encode()

    def asked(self, prefix):
        return [one for one in self.requests if one["path"].startswith(prefix)]


@pytest.fixture
def services(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("EVENKEEL_RETRY_DELAY", "0.001")
    with Services() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
        yield server


def read_all(services):
    with evenkeel.open("s3://bucket/rows.npy", budget="16MiB") as rows:
        assert np.array_equal(rows[:], ROWS)
    return services.asked("/bucket")[-1]["headers"]


@pytest.fixture
def pod(services, monkeypatch, tmp_path):
    """As Kubernetes starts a pod with a service account."""
    (tmp_path / "token").write_text("the+pod's/token\n")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", services.role)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", services.url)
    return services


def test_a_pod_exchanges_its_token_for_keys(pod):
    headers = read_all(pod)
    assert "Credential=ASIA1/" in headers["Authorization"]
    assert headers["x-amz-security-token"] == "session1"
    (asked,) = [one for one in pod.requests if one["method"] == "POST"]
    fields = dict(urllib.parse.parse_qsl(asked["body"].decode(), strict_parsing=True))
    assert fields == {
        "Action": "AssumeRoleWithWebIdentity",
        "Version": "2011-06-15",
        "RoleArn": pod.role,
        "RoleSessionName": "evenkeel",
        "WebIdentityToken": "the+pod's/token",
    }


def test_a_profile_may_name_the_token(pod, monkeypatch, tmp_path):
    (tmp_path / "config").write_text(
        f"[profile pod]\nrole_arn = {pod.role}\nrole_session_name = mine\n"
        f"web_identity_token_file = {tmp_path / 'token'}\n"
    )
    monkeypatch.delenv("AWS_WEB_IDENTITY_TOKEN_FILE")
    monkeypatch.setenv("AWS_PROFILE", "pod")
    assert "Credential=ASIA1/" in read_all(pod)["Authorization"]
    assert b"RoleSessionName=mine" in pod.requests[0]["body"]


def test_a_role_that_is_refused_is_named_and_the_token_is_not(pod):
    pod.refuses = True
    with pytest.raises(ValueError, match="403 AccessDenied") as error:
        evenkeel.open("s3://bucket/rows.npy")
    assert pod.role in str(error.value) and "the+pod" not in str(error.value)


def test_a_token_without_a_role_or_a_file(pod, monkeypatch, tmp_path):
    (tmp_path / "token").unlink()
    with pytest.raises(ValueError, match="no token in the file"):
        evenkeel.open("s3://bucket/rows.npy")
    monkeypatch.delenv("AWS_ROLE_ARN")
    with pytest.raises(ValueError, match="but AWS_ROLE_ARN, the role to assume, is not"):
        evenkeel.open("s3://bucket/rows.npy")


def test_a_token_goes_to_no_stranger_without_tls(pod, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://sts.example.com")
    with pytest.raises(ValueError, match="must begin with https"):
        evenkeel.open("s3://bucket/rows.npy")


def test_a_container_asks_the_service_beside_it(services, monkeypatch, tmp_path):
    (tmp_path / "token").write_text("container-token")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", services.url + "/creds")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
    assert "Credential=ASIA1/" in read_all(services)["Authorization"]
    (asked,) = services.asked("/creds")
    assert asked["headers"]["Authorization"] == "container-token"


@pytest.mark.parametrize(
    "host", ["example.com", "127.0.0.1@example.com", "127.0.0.1.example", "169.254.170.2.example"]
)
def test_a_container_asks_no_stranger(services, monkeypatch, host):
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://{host}/creds")
    with pytest.raises(ValueError, match="AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        evenkeel.open("s3://bucket/rows.npy")


@pytest.fixture
def machine(services, monkeypatch):
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", services.url + "/")
    return services


def test_a_machine_has_a_role(machine, monkeypatch):
    # No proxy is asked for what only this machine can reach.
    monkeypatch.setenv("no_proxy", machine.url[7:].partition(":")[0] + ":1")
    assert "Credential=ASIA1/" in read_all(machine)["Authorization"]
    token, role, keys = machine.asked("/latest")
    assert (token["method"], token["path"]) == ("PUT", "/latest/api/token")
    assert keys["path"].endswith("/some-role")
    for one in (role, keys):
        assert one["headers"]["X-aws-ec2-metadata-token"] == "machine-token"


def test_a_machine_without_a_role_reads_unsigned(machine):
    machine.refuses = True
    assert "Authorization" not in read_all(machine)


def test_keys_are_renewed_before_they_expire(machine):
    machine.lives_s = 200
    with evenkeel.open("s3://bucket/rows.npy", budget="16MiB") as rows:
        assert machine.given > 1  # the first are too old for a long read
        assert np.array_equal(rows[:], ROWS)
    last = machine.asked("/bucket")[-1]["headers"]["Authorization"]
    assert f"Credential=ASIA{machine.given}/" in last


def test_arrays_that_are_opened_one_after_the_other_share_keys(machine):
    read_all(machine)
    read_all(machine)
    assert machine.given == 1


def test_a_service_that_is_gone_does_not_matter_while_keys_are_good(machine):
    machine.lives_s = 200
    with evenkeel.open("s3://bucket/rows.npy", budget="16MiB") as rows:
        machine.refuses = True
        assert np.array_equal(rows[:10], ROWS[:10])


def test_keys_of_ones_own_come_first(pod, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKMINE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert "Credential=AKMINE/" in read_all(pod)["Authorization"]
    assert pod.given == 0


def test_children_of_fork_read_while_the_parent_reads(machine):
    """Other threads of the parent are in the middle of requests when it forks."""
    with evenkeel.open("s3://bucket/rows.npy", budget="16MiB") as rows:
        ended = threading.Event()

        def read():
            while not ended.is_set():
                rows.take([3, 100])

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(8):
                child = os.fork()
                if child == 0:
                    good = np.array_equal(rows.take([7, 400]), ROWS[[7, 400]])
                    os._exit(0 if good else 1)
                assert os.waitpid(child, 0)[1] == 0
        finally:
            ended.set()
            for thread in threads:
                thread.join()
