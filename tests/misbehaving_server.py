"""A small HTTP server for what a real Triton cannot be made to do; each test says byte for byte what it sends."""

import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedIOBase
from typing import Any, Final, Self

METADATA: Final = {
    "name": "text_generation",
    "versions": ["1"],
    "platform": "python",
    "inputs": [
        {"name": "text_input", "datatype": "BYTES", "shape": [-1, 1]},
        {"name": "max_tokens", "datatype": "INT32", "shape": [-1, 1]},
    ],
    "outputs": [
        {"name": "text_output", "datatype": "BYTES", "shape": [-1, 1]},
        {"name": "prompt_tokens", "datatype": "INT32", "shape": [-1, 1]},
        {"name": "completion_tokens", "datatype": "INT32", "shape": [-1, 1]},
    ],
}


def _config_tensor(name: str, data_type: str) -> dict[str, Any]:
    return {"name": name, "data_type": data_type, "dims": [1], "optional": False}


CONFIG: Final = {
    "name": "text_generation",
    "max_batch_size": 64,
    "input": [_config_tensor("text_input", "TYPE_STRING"), _config_tensor("max_tokens", "TYPE_INT32")],
    "output": [
        _config_tensor("text_output", "TYPE_STRING"),
        _config_tensor("prompt_tokens", "TYPE_INT32"),
        _config_tensor("completion_tokens", "TYPE_INT32"),
    ],
}
"""What ``tests/models/text_generation`` has, but for its optional inputs."""


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        """The JSON at the start of an inference request."""
        length = int(self.headers.get("inference-header-content-length", len(self.body)))
        content: dict[str, Any] = json.loads(self.body[:length])
        return content


Behaviour = Callable[["Peer", Received], None]
"""What is done about an inference request; the connection is closed when it returns, unless ``Peer.keep`` was called."""


@dataclass(slots=True)
class Peer:
    """The other end of one connection."""

    connection: socket.socket
    stopping: threading.Event
    kept: bool = False

    def send(self, content: bytes) -> None:
        """Send these very bytes."""
        self.connection.sendall(content)

    def keep(self) -> None:
        """Go on with the next request of this connection."""
        self.kept = True

    def reset(self) -> None:
        """End the connection with a reset instead of a proper close."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def wait(self, seconds: float = 60.0) -> None:
        """Say nothing for so long, or until the test is over."""
        self.stopping.wait(seconds)


def http(
    status: int, body: bytes = b"", content_type: str = "application/json", *, headers: Mapping[str, str] | None = None
) -> bytes:
    """Return a whole answer."""
    lines = {"Content-Type": content_type, "Content-Length": str(len(body)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} Whatever\r\n{head}\r\n".encode() + body


def inference_answer(request_id: str, **changes: Any) -> dict[str, Any]:
    """Return a right answer, in JSON alone, with these fields of it changed."""
    return {
        "id": request_id,
        "model_name": "text_generation",
        "model_version": "1",
        "outputs": [
            {"name": "text_output", "datatype": "BYTES", "shape": [1, 1], "data": ["hi"]},
            {"name": "prompt_tokens", "datatype": "INT32", "shape": [1, 1], "data": [3]},
            {"name": "completion_tokens", "datatype": "INT32", "shape": [1, 1], "data": [1]},
        ],
        **changes,
    }


def answers(content: bytes) -> Behaviour:
    """Do what sends these bytes, and keeps the connection for whatever comes next."""

    def behave(peer: Peer, _: Received) -> None:
        peer.send(content)
        peer.keep()

    return behave


def answers_rightly(peer: Peer, request: Received) -> None:
    """Answer as Triton would, and keep the connection."""
    peer.send(http(200, json.dumps(inference_answer(request.json["id"])).encode()))
    peer.keep()


class MisbehavingServer:
    """A context manager: a server on loopback that describes its model rightly, and does with inferences as told.

    ``replies`` gives whole answers to single paths, such as ``/v2``. ``received`` holds every request in order, and
    ``connections`` and ``closed`` count those that were made, and that this end closed. ``reads_bodies`` False answers before a request is in.
    While ``tells_of_itself`` is clear, whatever is no inference waits for its answer.
    """

    def __init__(
        self,
        behaviour: Behaviour = answers_rightly,
        *,
        replies: Mapping[str, bytes] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.behaviour = behaviour
        self.replies = {
            "/v2": http(200, b'{"name":"misbehaving","version":"0"}'),
            "/v2/health/ready": http(200),
            "/v2/models/text_generation": http(200, json.dumps(METADATA).encode()),
            "/v2/models/text_generation/config": http(200, json.dumps(CONFIG).encode()),
            "/v2/models/text_generation/ready": http(200),
            **(replies or {}),
        }
        self.received: list[Received] = []
        self.connections = 0
        self.closed = 0
        self.reads_bodies = True
        self.tells_of_itself = threading.Event()
        self.tells_of_itself.set()
        self._tls = tls
        self._stopping = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []

    @property
    def url(self) -> str:
        """The endpoint, as the worker's configuration takes it."""
        return f"{'https' if self._tls else 'http'}://localhost:{self.port}"

    @property
    def inferences(self) -> list[Received]:
        """The inference requests that came."""
        return [request for request in self.received if request.path.endswith("/infer")]

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.tells_of_itself.set()
        for end in (self._listener, *self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for end in (self._listener, *self._open):
            end.close()

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            self._start(self._serve, connection)

    def _serve(self, plain: socket.socket) -> None:
        # What the other end does wrong, or has enough of, is the test's concern and not this thread's.
        with suppress(OSError, ValueError):
            connection = plain if self._tls is None else self._tls.wrap_socket(plain, server_side=True)
            self._open.append(connection)
            peer = Peer(connection, self._stopping)
            with connection, connection.makefile("rb") as stream:
                while (request := _read(stream, with_body=self.reads_bodies)) is not None:
                    self.received.append(request)
                    if not self._reply(peer, request):
                        break
            self.closed += 1

    def _reply(self, peer: Peer, request: Received) -> bool:
        """Answer one request; tell whether the connection goes on."""
        if not request.path.endswith("/infer"):
            self.tells_of_itself.wait()
            peer.send(self.replies.get(request.path, http(404, b'{"error":"Not Found"}')))
            return True
        peer.kept = False
        self.behaviour(peer, request)
        return peer.kept


def _read(stream: BufferedIOBase, *, with_body: bool) -> Received | None:
    first = stream.readline()
    if not first:
        return None
    method, path, _ = first.decode("latin-1").split(" ", 2)
    headers = {}
    while line := stream.readline().strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    length = int(headers.get("content-length", 0)) if with_body else 0
    return Received(method, path, headers, stream.read(length))
