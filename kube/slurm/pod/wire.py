"""What the parts of slurm.py share: messages between them, which are lines of
JSON, and lists of nodes."""
import hashlib
import hmac
import json
import os
import re

DIR = os.environ.get("MUSTER_DIR", "/muster")
# How long a step whose node is lost waits for the scheduler to stop the job,
# and start it again, before it fails.
LOST = float(os.environ.get("MUSTER_LOST_WAIT", "120"))
LINE = 1 << 24  # bytes of a message


def number(name, default=0):
    return int(os.environ.get(name) or default)


class Channel:
    """Messages to and from another process."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    def send(self, message):
        if not self.writer.is_closing():
            self.writer.write(json.dumps(message).encode() + b"\n")

    async def receive(self):
        """The next message, None once the other side is gone."""
        try:
            line = await self.reader.readline()
        except (OSError, ValueError):
            return None
        return json.loads(line.decode()) if line.endswith(b"\n") else None

    async def flush(self):
        try:
            await self.writer.drain()
        except OSError:
            pass


def proof(key, who, nonce):
    return hmac.new(key.encode(), (who + nonce).encode(), hashlib.sha256).hexdigest()


def text(data):
    return data.decode("utf-8", "surrogateescape")


def hostnames(text):
    """The nodes of a list such as a,n[1-2,4].x"""
    out, part, depth = [], "", 0
    for c in text + ",":
        if c == "," and depth == 0:
            m = re.match(r"^([^\[\]]*)\[([^\[\]]*)\]([^\[\]]*)$", part)
            if m:
                for r in m.group(2).split(","):
                    first, _, last = r.partition("-")
                    for i in range(int(first), int(last or first) + 1):
                        out.append(m.group(1) + str(i).zfill(len(first)) + m.group(3))
            elif part:
                out.append(part)
            part = ""
        else:
            depth += {"[": 1, "]": -1}.get(c, 0)
            part += c
    return out


def pattern(name, values):
    """The name of a file with %j, %N, %t… replaced."""
    def one(m):
        v = values.get(m.group(2))
        if m.group(2) == "%":
            return "%"
        return m.group(0) if v is None else str(v).zfill(int(m.group(1) or 0))
    return re.sub(r"%(\d*)([a-zA-Z%])", one, name)
