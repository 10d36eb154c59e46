"""A local Maven repository with small artificial jars, for tests of downloads."""

import hashlib
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from proxy.embedded.jars import Jar


class Repository:
    """Server of the jars given to `add`. `asked` counts the requests by file name."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.asked: Counter[str] = Counter()
        self.address = ""

    def add(self, coordinates: str, content: bytes) -> Jar:
        jar = Jar(coordinates, hashlib.sha256(content).hexdigest(), len(content))
        self.contents[jar.file_name] = content
        return jar


@contextmanager
def maven_repository() -> Iterator[Repository]:
    repository = Repository()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            repository.asked[name] += 1
            content = repository.contents.get(name)
            self.send_response(200 if content is not None else 404)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Do nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        repository.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield repository
        server.shutdown()
        thread.join()
