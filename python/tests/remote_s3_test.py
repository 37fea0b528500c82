"""s3:// and gs://: signatures that a real server checks, keys, patterns, credentials."""

import re
import shutil
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from remote_help import ObjectServer, npy, started

import evenkeel

ROWS = np.arange(500 * 16, dtype=np.float32).reshape(500, 16)
KEY, SECRET = "AKEVENKEELTEST", "secret+of/the=test"


@pytest.fixture(autouse=True)
def no_credentials_of_this_machine(monkeypatch, tmp_path):
    for name in (
        "AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_PROFILE AWS_REGION"
        " AWS_DEFAULT_REGION AWS_ENDPOINT_URL_S3 AWS_WEB_IDENTITY_TOKEN_FILE"
    ).split():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("EVENKEEL_RETRY_DELAY", "0.001")


@pytest.fixture(scope="module")
def rclone(tmp_path_factory):
    """`rclone serve s3`: it refuses what is signed wrongly. Yields its address and folder."""
    tool = shutil.which("rclone") or shutil.which("rclone", path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.skip("rclone is not installed")
    root = tmp_path_factory.mktemp("s3")
    (root / "bucket").mkdir()
    rest = ["--vfs-cache-mode", "off", "--config", "/dev/null", "--dir-cache-time", "0", str(root)]
    server, port = started(
        lambda port: (
            [tool, "serve", "s3", "--auth-key", f"{KEY},{SECRET}"]
            + ["--addr", f"127.0.0.1:{port}", *rest]
        ),
        ports=1,
    )
    try:
        yield f"http://127.0.0.1:{port}", root / "bucket"
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def bucket(rclone, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", rclone[0])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    return rclone[1]


def store(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


@pytest.mark.parametrize(
    "key", ["plain.npy", "year=2024/part=1.npy", "a b+c&d#e/ü~(1)'%41.npy", "q?uestion/x.npy"]
)
def test_keys_of_all_kinds_are_signed_right(bucket, key):
    store(bucket / key, npy(ROWS))
    with evenkeel.open("s3://bucket/" + key, budget="8MiB") as a:
        np.testing.assert_array_equal(a[:], ROWS)
        assert "AWS_ACCESS_KEY_ID" in a.engine and SECRET not in a.engine


def test_a_pattern_is_listed(bucket):
    for i in range(3):
        store(bucket / f"list/part={i}.npy", npy(ROWS[i::3]))
    store(bucket / "list/deep/part=9.npy", npy(ROWS))
    with evenkeel.open("s3://bucket/list/part=*.npy", budget="8MiB") as a:
        np.testing.assert_array_equal(a[:], np.concatenate([ROWS[i::3] for i in range(3)]))
        assert [path.rpartition("/")[2] for path in a.paths] == [f"part={i}.npy" for i in range(3)]
    with pytest.raises(FileNotFoundError, match="no object matches"):
        evenkeel.open("s3://bucket/list/x*.npy")


def test_tokens_and_their_index_are_found(bucket):
    tokens = np.arange(1000, dtype=np.uint16)
    store(bucket / "tok/train.bin", tokens.tobytes())
    t = evenkeel.tokens("s3://bucket/tok/train.bin", budget="8MiB")
    np.testing.assert_array_equal(t[10:20], tokens[10:20])


def test_wrong_keys_are_refused_and_not_shown(bucket, monkeypatch):
    store(bucket / "rows.npy", npy(ROWS))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    with pytest.raises(PermissionError, match="SignatureDoesNotMatch") as error:
        evenkeel.open("s3://bucket/rows.npy")
    assert "another-secret" not in str(error.value)
    assert "AWS_ACCESS_KEY_ID" in str(error.value)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(ValueError, match="AWS_SECRET_ACCESS_KEY is set, but not AWS_ACCESS_KEY_ID"):
        evenkeel.open("s3://bucket/rows.npy")


def test_keys_come_from_a_profile(bucket, monkeypatch, tmp_path):
    store(bucket / "rows.npy", npy(ROWS))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    (tmp_path / "credentials").write_text(
        f"[default]\naws_access_key_id = no\naws_secret_access_key = no\n\n"
        f"[work]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
    )
    monkeypatch.setenv("AWS_PROFILE", "work")
    with evenkeel.open("s3://bucket/rows.npy", budget="8MiB") as a:
        np.testing.assert_array_equal(a[3], ROWS[3])
        assert 'profile "work"' in a.engine
    monkeypatch.setenv("AWS_PROFILE", "missing")
    with pytest.raises(ValueError, match="no such profile"):
        evenkeel.open("s3://bucket/rows.npy")


class Service(ObjectServer):
    """Says in pages what is in its bucket, and which header fields it got."""

    page = 2

    def respond(self, handler, path, query):
        if "list-type=2" not in query:
            return super().respond(handler, path, query)
        keys = sorted(name[len("/bucket/") :] for name in self.objects)
        after = re.search("continuation-token=([0-9]+)", query)
        first = int(after[1]) if after else 0
        more = first + self.page < len(keys)
        xml = "<ListBucketResult>" + "".join(
            f"<Contents><Key>{key}</Key></Contents>" for key in keys[first : first + self.page]
        )
        xml += f"<IsTruncated>{str(more).lower()}</IsTruncated>"
        if more:
            xml += f"<NextContinuationToken>{first + self.page}</NextContinuationToken>"
        return 200, {}, (xml + "</ListBucketResult>").encode()


@pytest.fixture
def service(monkeypatch):
    with Service() as made:
        monkeypatch.setenv("AWS_ENDPOINT_URL", made.url)
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", made.url)
        yield made


def test_a_listing_that_goes_in_circles_is_an_error(service, monkeypatch):
    def respond(handler, path, query):
        next_page = "b" if "continuation-token=a" in query else "a"
        xml = (
            "<ListBucketResult><IsTruncated>true</IsTruncated>"
            f"<NextContinuationToken>{next_page}</NextContinuationToken></ListBucketResult>"
        )
        return 200, {}, xml.encode()

    monkeypatch.setattr(service, "respond", respond)
    with pytest.raises(ValueError, match="listing does not end"):
        evenkeel.open("s3://bucket/p*.npy")


def test_long_listings_come_in_pages(service):
    for i in range(7):
        service.put(f"bucket/p{i}.npy", npy(ROWS[i::7]))
    service.fault = lambda number: "503" if number % 3 == 1 else None
    with evenkeel.open("s3://bucket/p*.npy", budget="8MiB") as a:
        np.testing.assert_array_equal(a[:], np.concatenate([ROWS[i::7] for i in range(7)]))


def test_session_tokens_and_requester_pays_are_sent_and_signed(service, monkeypatch):
    service.put("bucket/rows.npy", npy(ROWS))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "the-session")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("EVENKEEL_REQUESTER_PAYS", "1")
    with evenkeel.open("s3://bucket/rows.npy", budget="8MiB") as a:
        a[1]
        assert "the-session" not in a.engine
    sent = service.requests[-1]["headers"]
    assert sent["x-amz-security-token"] == "the-session"
    assert sent["x-amz-request-payer"] == "requester"
    assert "/eu-central-1/s3/aws4_request" in sent["Authorization"]
    assert "x-amz-request-payer;x-amz-security-token" in sent["Authorization"]


def test_without_credentials_requests_are_not_signed(service):
    service.put("bucket/rows.npy", npy(ROWS))
    with evenkeel.open("s3://bucket/rows.npy", budget="8MiB") as a:
        assert "not signed" in a.engine
    assert "Authorization" not in service.requests[-1]["headers"]
    with pytest.raises(ValueError, match="names a bucket, but no object"):
        evenkeel.open("s3://bucket")


def test_google_takes_bearer_tokens_and_hmac_keys(service, monkeypatch):
    service.put("bucket/rows.npy", npy(ROWS))
    monkeypatch.setenv("GS_HMAC_ACCESS_ID", "GOOG1")
    monkeypatch.setenv("GS_HMAC_SECRET", "123secret456")
    with evenkeel.open("gs://bucket/rows.npy", budget="8MiB") as a:
        np.testing.assert_array_equal(a[2], ROWS[2])
    assert "Credential=GOOG1/" in service.requests[-1]["headers"]["Authorization"]
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "token-of-google")
    with evenkeel.open("gs://bucket/r*.npy", budget="8MiB") as a:
        assert "token-of-google" not in a.engine + repr(a)
    assert service.requests[-1]["headers"]["Authorization"] == "Bearer token-of-google"


def test_objects_of_another_region_are_opened_at_once(service, monkeypatch):
    """The first answer names the region; the others were asked for before it came."""
    for i in range(4):
        service.put(f"bucket/r{i}.bin", ROWS[i::4].tobytes())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    answer, together = service.respond, threading.Barrier(4)

    def respond(handler, path, query):
        if "/ap-south-1/" not in handler.headers["Authorization"]:
            together.wait(60)
            return 301, {"x-amz-bucket-region": "ap-south-1"}, b""
        return answer(handler, path, query)

    service.respond = respond
    urls = [f"s3://bucket/r{i}.bin" for i in range(4)]
    with evenkeel.open(urls, dtype="float32", shape=(-1, 16), budget="8MiB") as a:
        np.testing.assert_array_equal(a[:], np.concatenate([ROWS[i::4] for i in range(4)]))


def test_an_endpoint_with_a_password_is_refused_and_not_shown(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:123secret456@127.0.0.1:1")
    with pytest.raises(ValueError, match="AWS_ENDPOINT_URL") as error:
        evenkeel.open("s3://bucket/rows.npy")
    assert "123secret456" not in str(error.value)


@pytest.mark.parametrize("region", ["evil.example/", "a.b", "a@b", "a:1", "A/b"])
def test_a_region_that_could_name_another_host_is_not_taken(region, service, monkeypatch):
    """Regions become part of host names that credentials are sent to."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    signatures = []

    def respond(handler, path, query):
        signatures.append(handler.headers["Authorization"])
        return 301, {"x-amz-bucket-region": region}, b""

    service.respond = respond
    with pytest.raises((OSError, ValueError)):
        evenkeel.open("s3://bucket/rows.npy", budget="8MiB")
    assert signatures
    assert not [one for one in signatures if f"/{region}/" in one]


def test_the_region_that_a_server_names_is_taken(service, monkeypatch):
    service.put("bucket/rows.npy", npy(ROWS))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    answer = service.respond

    def respond(handler, path, query):
        if "/ap-south-1/" not in handler.headers["Authorization"]:
            return 301, {"x-amz-bucket-region": "ap-south-1"}, b""
        return answer(handler, path, query)

    service.respond = respond
    with evenkeel.open("s3://bucket/rows.npy", budget="8MiB") as a:
        np.testing.assert_array_equal(a[2], ROWS[2])
        assert "ap-south-1" in a.engine
