"""Outputs at s3://: multipart uploads, to a server that checks signatures and to one that fails."""

import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.parse

import numpy as np
import pytest
from remote_help import ObjectServer, npy
from remote_s3_test import (  # noqa: F401
    bucket,
    no_credentials_of_this_machine,
    rclone,
)

import evenkeel

ROWS = np.random.default_rng(1).random((300_000, 9))  # 20.6 MiB: five parts
TOOL = os.environ.get("EVENKEEL_TOOL")


class Multipart(ObjectServer):
    """As much of S3 as uploads need. `dropped` are uploads that were aborted."""

    def __init__(self):
        super().__init__()
        self.uploads, self.dropped, self.numbers = {}, [], itertools.count()
        handler = self._server.RequestHandlerClass
        handler.do_DELETE = handler.do_GET

    def respond(self, handler, path, query):
        fields = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        body = next(
            one["body"]
            for one in reversed(self.requests)
            if (one["method"], one["path"]) == (handler.command, handler.path)
        )
        if "uploads" in fields:
            name = f"upload-{next(self.numbers)}"
            self.uploads[name] = {}
            return 200, {}, xml("InitiateMultipartUploadResult", f"<UploadId>{name}</UploadId>")
        if "uploadId" not in fields:
            return super().respond(handler, path, query)
        parts = self.uploads.get(fields["uploadId"])
        if parts is None:
            return 404, {}, xml("Error", "<Code>NoSuchUpload</Code>")
        if handler.command == "DELETE":
            self.dropped.append(fields["uploadId"])
            del self.uploads[fields["uploadId"]]
            return 204, {}, b""
        if handler.command == "PUT":
            parts[int(fields["partNumber"])] = body
            return 200, {"ETag": f'"tag-{fields["partNumber"]}"'}, b""
        numbers = [int(n) for n in re.findall(rb"<PartNumber>(\d+)</PartNumber>", body)]
        tags = re.findall(rb"<ETag>&quot;(tag-\d+)&quot;</ETag>", body)
        assert [f"tag-{n}".encode() for n in numbers] == tags
        assert numbers == list(range(1, len(parts) + 1))
        assert all(len(parts[n]) >= 5 << 20 for n in numbers[:-1])
        self.objects[path] = b"".join(parts[n] for n in numbers)
        del self.uploads[fields["uploadId"]]
        return 200, {}, xml("CompleteMultipartUploadResult", "<ETag>x</ETag>")


def xml(name, inside):
    return f'<?xml version="1.0"?><{name}>{inside}</{name}>'.encode()


@pytest.fixture
def server(monkeypatch):
    with Multipart() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        yield server


def write_rows(url, **options):
    with evenkeel.create(url, ROWS.dtype, (None, 9), **options) as writer:
        for first in range(0, len(ROWS), 70_000):
            writer.append(ROWS[first : first + 70_000])
        return writer.how


def test_an_array_at_a_server_that_checks_signatures(bucket):  # noqa: F811
    budget = evenkeel.Budget("32MiB")
    how = write_rows("s3://bucket/a b/x.npy", budget=budget)
    assert how == "multipart upload, parts of 5 MiB, 2 at a time"
    assert budget.peak <= budget.limit and budget.in_use == 0
    assert (bucket / "a b" / "x.npy").read_bytes() == npy(ROWS)
    with evenkeel.open("s3://bucket/a b/x.npy", budget="32MiB") as array:
        assert np.array_equal(array[:], ROWS)


def test_tokens(bucket):  # noqa: F811
    for format in ("nanogpt", "llm.c", "npy"):
        with evenkeel.TokenWriter("s3://bucket/t.bin", format, "uint16", eot=9) as writer:
            for first in range(0, 40_000, 1000):
                writer.append(np.arange(first, first + 1000, dtype=np.uint16))
                writer.end_document()
        with evenkeel.TokenWriter("t.bin", format, "uint16", eot=9) as writer:
            for first in range(0, 40_000, 1000):
                writer.append(np.arange(first, first + 1000, dtype=np.uint16))
                writer.end_document()
        with open("t.bin", "rb") as file:
            assert (bucket / "t.bin").read_bytes() == file.read()
    for format in ("megatron", "datatrove"):
        with pytest.raises(ValueError, match="are a pair, which is not uploaded"):
            evenkeel.TokenWriter("s3://bucket/t.bin", format, "uint16")


@pytest.mark.skipif(TOOL is None, reason="the tool is not built")
def test_commands(bucket, folder):  # noqa: F811
    np.save("x.npy", ROWS[:1000])
    for command in (["convert"], ["shuffle", "--scratch", "."], ["sample", "--count", "10"]):
        subprocess.run([TOOL, *command, "x.npy", "-o", "local.npy"], check=True)
        subprocess.run([TOOL, *command, "x.npy", "-o", "s3://bucket/y.npy"], check=True)
        assert (bucket / "y.npy").read_bytes() == (folder / "local.npy").read_bytes()
    for words, message in (
        (["shuffle"], "the scratch file cannot lie beside an object"),
        (["split", "--parts", "2"], "parts must be files"),
        (["dedup"], "its outputs are files"),
        (["convert", "--checksums"], "checksums lie beside files"),
        (["convert", "--resume"], "an upload that was ended cannot be resumed"),
    ):
        done = subprocess.run(
            [TOOL, *words, "x.npy", "-o", "s3://bucket/z{}.npy"], capture_output=True, text=True
        )
        assert done.returncode == 1 and message in done.stderr, done
    assert sorted(path.name for path in folder.iterdir()) == ["local.npy", "x.npy"]


def test_parts_that_fail_are_sent_again(server):
    faults = ["500", "reset", "503", "close", "429", "garbage"]
    server.fault = lambda number: faults.pop() if number % 2 and faults else None
    write_rows("s3://bucket/x.npy", budget="64MiB")
    assert not faults
    assert server.objects == {"/bucket/x.npy": npy(ROWS)}
    assert not server.uploads and not server.dropped


def test_an_upload_that_the_server_lost_is_an_error(server):
    def fault(number):
        if server.uploads and b"<CompleteMultipartUpload>" in server.requests[number]["body"]:
            server.uploads.clear()
            return "close"
        return None

    server.fault = fault
    for old in (b"old", npy(ROWS)[::-1]):
        server.put("bucket/x.npy", old)
        with pytest.raises(ValueError, match="the server lost the upload"):
            write_rows("s3://bucket/x.npy")


def test_an_upload_whose_last_answer_was_lost_is_found(server):
    lost = []

    def fault(number):
        if not lost and b"<CompleteMultipartUpload>" in server.requests[number]["body"]:
            lost.append(number)
            return "close"  # after it was done
        return None

    server.fault = fault
    server.put("bucket/x.npy", npy(ROWS)[::-1])
    write_rows("s3://bucket/x.npy")
    assert lost and server.objects == {"/bucket/x.npy": npy(ROWS)}


def test_an_exception_aborts_the_upload(server):
    server.put("bucket/x.npy", b"old")
    with pytest.raises(ZeroDivisionError):
        with evenkeel.create("s3://bucket/x.npy", "float64", (None, 9)) as writer:
            writer.append(ROWS)
            writer.append(ROWS[: 1 // 0])
    assert server.dropped == ["upload-0"] and not server.uploads
    assert server.objects == {"/bucket/x.npy": b"old"}


def test_a_server_that_refuses_is_named(server, monkeypatch):
    server.fault = lambda number: "forbidden"
    with pytest.raises(PermissionError, match="AccessDenied(.|\\n)*keys may write the object"):
        evenkeel.create("s3://bucket/x.npy")
    faults = ["gone", "503"]  # not an upload that vanished: the bucket is not there
    server.fault = lambda number: faults.pop() if faults else None
    with pytest.raises(FileNotFoundError):
        evenkeel.create("s3://bucket/x.npy")
    monkeypatch.setenv("EVENKEEL_ATTEMPTS", "3")
    server.fault = lambda number: "500" if server.uploads else None
    with pytest.raises(OSError, match="3 attempts"):
        write_rows("s3://bucket/x.npy")
    assert "/bucket/x.npy" not in server.objects


def test_ctrl_c_aborts_the_upload(server, folder):
    """Parts do not arrive; the program waits for them, and is interrupted."""
    server.fault = lambda number: "stall" if number else None
    program = """if 1:
        import evenkeel, numpy
        with evenkeel.create("s3://bucket/x.npy", "float64", (None,), budget="32MiB") as w:
            for _ in range(100):
                w.append(numpy.zeros(1 << 20))
    """
    # The upload was begun, and two parts are on their way.
    _, error = interrupted([sys.executable, "-c", program], signal.SIGINT, server, 3)
    assert "KeyboardInterrupt" in error
    assert server.dropped == ["upload-0"] and not server.objects


def test_an_error_in_an_answer_that_succeeded_is_reported_in_a_few_words(server, monkeypatch):
    answer = server.respond
    long = "The parts could not be joined. " * 10_000

    def respond(handler, path, query):
        if handler.command == "POST" and query.startswith("uploadId"):
            words = f"<Code>InternalError</Code><Message>{long}</Message>"
            return 200, {}, xml("Error", words)
        return answer(handler, path, query)

    server.respond = respond
    monkeypatch.setenv("EVENKEEL_ATTEMPTS", "2")
    with pytest.raises(OSError, match=r"says InternalError \(The parts could not") as caught:
        write_rows("s3://bucket/x.npy")
    assert len(str(caught.value)) < 1000


def begins(request):
    return request["path"].endswith("?uploads=")


def asks_for_the_old_object(request):
    return request["method"] == "GET"


def completes(request):
    return b"<CompleteMultipartUpload>" in request["body"]


@pytest.mark.parametrize("delayed", [begins, asks_for_the_old_object, completes])
def test_a_signal_handler_may_fork_while_the_server_is_asked(server, delayed):
    """The child must not use the connection of its parent, whose request it is."""
    program = """if 1:
        import os, signal, evenkeel
        children = []
        def fork(*_):
            children.append(os.fork())
            if children == [0]:
                signal.alarm(20)
        signal.signal(signal.SIGUSR1, fork)
        try:
            with evenkeel.create("s3://bucket/x.npy", "float64", (10,)):
                pass
            said = "wrote"
        except ValueError as error:
            said = str(error)
        print("child" if children == [0] else "parent", said, flush=True)
        if children != [0]:
            assert os.waitpid(children[0], 0)[1] == 0
    """
    server.put("bucket/x.npy", b"old")
    asked, may_answer = threading.Event(), threading.Event()

    def fault(number):
        if delayed(server.requests[number]):
            asked.set()
            may_answer.wait(60)

    server.fault = fault
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert asked.wait(60)
        writer.send_signal(signal.SIGUSR1)
        child = writer.stdout.readline()
        may_answer.set()
        parent = writer.stdout.readline()
    assert child.startswith("child ") and "is a child of the writing process" in child
    assert (parent, writer.returncode) == ("parent wrote\n", 0)
    assert server.objects == {"/bucket/x.npy": npy(np.zeros(10))}
    assert not server.uploads and not server.dropped
    assert len([request for request in server.requests if delayed(request)]) == 1


@pytest.mark.skipif(TOOL is None, reason="the tool is not built")
@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("words", [["convert"], ["shuffle", "--scratch", "."]])
def test_signals_end_commands_that_wait_for_the_server(server, folder, words, ended_by):
    np.save("x.npy", ROWS[:1000])
    server.fault = lambda number: "stall"
    command = [TOOL, *words, "x.npy", "-o", "s3://bucket/x.npy"]
    status, _ = interrupted(command, ended_by, server, 1)
    assert status == 128 + ended_by
    assert not server.objects


def interrupted(command, ended_by, server, requests):
    """Exit status and words of a program that is sent a signal after so many requests."""
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        while len(server.requests) < requests:
            assert child.poll() is None, child.stderr.read()
            time.sleep(0.01)
        server.fault = lambda number: None
        child.send_signal(ended_by)
        _, error = child.communicate(timeout=60)
        return child.returncode, error
    finally:
        child.kill()
        child.wait()


@pytest.mark.skipif(TOOL is None, reason="the tool is not built")
def test_a_shuffle_fails_before_it_begins(server, folder):
    np.save("x.npy", ROWS[:1000])
    (folder / "x.bin").write_bytes(bytes(4000))
    tokens = ["x.bin", "--dtype", "uint16", "--block", "10", "--format"]

    def shuffled(words, output="s3://bucket/y.npy", scratch="."):
        words = [TOOL, "shuffle", *words, "-o", output, "--scratch", scratch]
        return subprocess.run(words, capture_output=True, text=True)

    def refused(words, message, output="s3://bucket/y.npy"):
        done = shuffled(words, output, "missing")  # shows where it begins
        assert done.returncode == 1 and message in done.stderr, done

    refused(["x.npy"], "the folder must exist")
    refused(["x.npy", "--checksums"], "checksums lie beside files")
    refused([*tokens, "nope"], "there is no token format")
    refused([*tokens, "megatron"], "a pair, which is not uploaded")
    refused(["x.npy", "--format", "llm.c"], 'format "llm.c" is for token files')
    refused(["x.npy", "--budget", "32MiB"], "a budget of 45 MiB is enough")
    refused(["x.npy"], "outputs are files, or objects at s3://", "https://host/y")
    server.fault = lambda number: "forbidden"
    refused(["x.npy"], "AccessDenied")
    server.fault = lambda number: None
    assert shuffled(["x.npy", "--budget", "45MiB"]).returncode == 0
    evenkeel.shuffle("x.npy", "y.npy")
    assert server.objects == {"/bucket/y.npy": (folder / "y.npy").read_bytes()}
    assert sorted(path.name for path in folder.iterdir()) == ["x.bin", "x.npy", "y.npy"]
    with pytest.raises(ValueError, match="there is no token format"):
        evenkeel.plan_shuffle("x.bin", "y.bin", parts=2, format="nope", dtype="uint16", block=10)


@pytest.mark.skipif(TOOL is None, reason="the tool is not built")
def test_32_mib_are_enough_to_copy(server, folder):
    np.save("x.npy", ROWS)
    command = [TOOL, "convert", "x.npy", "-o", "s3://bucket/x.npy", "--budget", "32MiB"]
    subprocess.run(command, check=True)
    assert server.objects == {"/bucket/x.npy": npy(ROWS)}


def test_parts_are_as_large_as_the_object_needs(server, monkeypatch):
    def how(rows, **options):
        with pytest.raises(ZeroDivisionError):
            with evenkeel.create("s3://bucket/x.npy", "u1", (rows, 1 << 20), **options) as writer:
                words = writer.how
                raise ZeroDivisionError
        return words

    assert how(None, budget="64MiB") == "multipart upload, parts of 5 MiB, 7 at a time"
    assert how(90_000, budget="64MiB") == "multipart upload, parts of 10 MiB, 2 at a time"
    with pytest.raises(MemoryError, match="because an object has at most 10,000 parts"):
        how(190_000, budget="64MiB")
    monkeypatch.setenv("EVENKEEL_CONNECTIONS", "1")
    assert how(None, budget="64MiB") == "multipart upload, parts of 5 MiB, 1 at a time"


def test_rows_that_are_missing_are_zeros(server):
    with evenkeel.create("s3://bucket/x.npy", "float64", (1000, 9)) as writer:
        writer.append(ROWS[:10])
    assert server.objects["/bucket/x.npy"] == npy(np.concatenate([ROWS[:10], np.zeros((990, 9))]))


def test_what_cannot_be(server):
    with pytest.raises(ValueError, match="outputs are files, or objects at s3://"):
        evenkeel.create("https://host/x.npy")
    with pytest.raises(ValueError, match="the name of the object is missing"):
        evenkeel.create("s3://bucket/")
    with pytest.raises(MemoryError, match="three parts of 5 MiB"):
        evenkeel.create("s3://bucket/x.npy", budget="8MiB")
    with pytest.raises(ValueError, match="cannot be resumed"):
        evenkeel.create("s3://bucket/x.npy", resume=True)
    with evenkeel.create("s3://bucket/x.npy", "float64", (None, 9), budget="32MiB") as writer:
        writer.append(ROWS)
        with pytest.raises(ValueError, match="there are no checkpoints"):
            writer.checkpoint()
        writer[:5] = 1  # of the first part
        writer[-5:] = 2  # of the last
    with evenkeel.create("s3://bucket/y.npy", "float64", (None, 9), budget="32MiB") as writer:
        writer.append(ROWS[:100_000])
        writer[72_000:74_000] = 1  # of the first part, and of the second
        writer.append(ROWS[100_000:])
        with pytest.raises(ValueError, match="were sent already"):
            writer[150_000:150_005] = 1  # and continues
        with pytest.raises(ValueError, match="were sent already"):
            writer[72_000:74_000] = 2
    wanted = ROWS.copy()
    wanted[72_000:74_000] = 1
    assert server.objects["/bucket/y.npy"] == npy(wanted)
    with evenkeel.open("s3://bucket/x.npy", budget="64MiB") as array:
        assert array[4, 0] == 1 and array[-1, 0] == 2 and array[5, 0] == ROWS[5, 0]
    assert not server.dropped


def test_threads_upload_at_once(server):
    threads = [
        threading.Thread(
            target=write_rows, args=(f"s3://bucket/{i}.npy",), kwargs={"budget": "32MiB"}
        )
        for i in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.objects == {f"/bucket/{i}.npy": npy(ROWS) for i in range(3)}
