"""What runs in each pod: the tasks of one node."""
import asyncio
import errno
import hmac
import os
import signal
import socket
import sys

from wire import DIR, LINE, LOST, Channel, proof, text


class Agent:
    """Runs the tasks of one node, and tells what becomes of them."""

    def __init__(self, tell, flush):
        self.tell, self.flush = tell, flush
        self.tasks = {}  # (step, rank) -> process
        self.early = {}  # (step, rank) -> input and signals of tasks that are not running yet
        self.ending = False

    def handle(self, message):
        do = message["do"]
        if do == "run":
            for task in message["tasks"]:
                self.early[message["step"], task["rank"]] = [signal.SIGTERM] if self.ending else []
                asyncio.ensure_future(self.run(message, task))
        elif do == "signal":
            self.signal(message["signal"], message["step"])
        elif do == "input":
            for (step, rank), kept in self.early.items():
                if step == message["step"]:
                    kept.append(message["data"])
            for (step, rank), process in self.tasks.items():
                if step == message["step"]:
                    self.feed(process, message["data"])

    @staticmethod
    def feed(process, data):
        if data:
            process.stdin.write(data.encode("utf-8", "surrogateescape"))
        else:
            process.stdin.close()

    def signal(self, number, step=None):
        for (of, _), kept in self.early.items():
            if step in (None, of):
                kept.append(number)
        for (of, _), process in list(self.tasks.items()):
            if step in (None, of):
                self.kill(process, number)

    @staticmethod
    def kill(process, number):
        try:
            os.killpg(process.pid, number)
        except OSError:
            pass

    async def run(self, step, task):
        rank, env, files = task["rank"], dict(os.environ), []
        for name in step["unset"]:
            env.pop(name, None)
        env.update(step["env"])
        env.update(task["env"])
        env["SLURMD_NODENAME"] = os.environ["SLURMD_NODENAME"]
        say = lambda fd, data: self.tell({"step": step["step"], "rank": rank, "fd": fd, "data": data})
        code = 0
        try:
            cwd = step["cwd"]
            if not os.path.isdir(cwd):
                say(2, "srun: error: couldn't chdir to `%s': No such file or directory: going to /tmp instead\n" % cwd)
                cwd = "/tmp"
            to = {1: asyncio.subprocess.PIPE, 2: asyncio.subprocess.PIPE}
            for fd, name in task["files"].items():
                to[int(fd)] = open(os.path.join(cwd, name), task["mode"])
                files.append(to[int(fd)])
            if "1" in task["files"] and "2" not in task["files"]:
                to[2] = asyncio.subprocess.STDOUT
            process = await asyncio.create_subprocess_exec(
                *step["argv"], env=env, cwd=cwd, start_new_session=True,
                stdin=asyncio.subprocess.PIPE if step["input"] else asyncio.subprocess.DEVNULL, stdout=to[1], stderr=to[2])
        except OSError as e:
            say(2, "srun: error: execve(): %s: %s\n" % (step["argv"][0], os.strerror(e.errno or errno.EIO)))
            code = e.errno or 1
            self.early.pop((step["step"], rank), None)
        else:
            self.tasks[step["step"], rank] = process
            # It may have begun some time ago, and has what came since.
            for kept in self.early.pop((step["step"], rank)):
                if isinstance(kept, int):
                    self.kill(process, kept)
                else:
                    self.feed(process, kept)
            await asyncio.gather(self.pump(process.stdout, 1, say), self.pump(process.stderr, 2, say))
            code = await process.wait()
            del self.tasks[step["step"], rank]
        for f in files:
            f.close()
        self.tell({"step": step["step"], "rank": rank, "exit": code})

    async def pump(self, stream, fd, say):
        """Passes on what a task writes, whole lines where it writes any."""
        kept = b""
        while stream is not None:
            data = await stream.read(1 << 16)
            kept += data
            end = len(kept) if not data or len(kept) > 1 << 20 else max(kept.rfind(b"\n"), kept.rfind(b"\r")) + 1
            if end:
                say(fd, text(kept[:end]))
                kept = kept[end:]
                await self.flush()
            if not data:
                return

    async def end(self):
        """Ends all tasks: they are asked, and killed after five seconds."""
        self.ending = True
        for number, wait in ((signal.SIGTERM, 50), (signal.SIGKILL, 20)):
            self.signal(number)
            for _ in range(wait):
                if not self.tasks and not self.early:
                    return
                await asyncio.sleep(0.1)


async def follow(index):
    """The life of a pod that is not the first: it runs what that tells it to."""
    host, port = os.environ["MUSTER_BATCH_ADDRESS"].rsplit(":", 1)
    with open(os.path.join(DIR, "key")) as f:
        key = f.read().strip()
    channel, loop = None, asyncio.get_event_loop()
    agent = Agent(lambda m: tell(m), lambda: channel.flush())
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)

    def tell(message):
        # A task's output is in the log of its own pod too: who looks for what
        # went wrong on this node finds it here.
        if "data" in message:
            out = sys.stdout if message["fd"] == 1 else sys.stderr
            out.write(message["data"])
            out.flush()
        channel.send(message)

    async def connect():
        while True:
            try:
                reader, writer = await asyncio.open_connection(host, int(port), limit=LINE)
            except OSError:
                await asyncio.sleep(0.5)  # the first pod's image may be on its way
                continue
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            c = Channel(reader, writer)
            mine = os.urandom(16).hex()
            hello = await c.receive()
            if hello:
                c.send({"node": index, "proof": proof(key, "node%d" % index, hello["nonce"]), "nonce": mine})
                answer = await c.receive()
                if answer and hmac.compare_digest(answer.get("proof", ""), proof(key, "batch", mine)):
                    return c
            writer.close()
            await asyncio.sleep(0.5)

    stopping = asyncio.ensure_future(stop.wait())
    connecting = asyncio.ensure_future(connect())
    await asyncio.wait([connecting, stopping], return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        return 143
    channel = connecting.result()
    while True:
        receiving = asyncio.ensure_future(channel.receive())
        await asyncio.wait([receiving, stopping], return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            channel.send({"leaving": True})
            await channel.flush()
            await agent.end()
            return 143
        message = receiving.result()
        if message is None or message["do"] == "end":
            await agent.end()
            if message:
                return 0
            # The job is over, or starts again: which of the two is not for
            # this pod to say by failing first.
            print("muster: the job's first pod is gone", file=sys.stderr, flush=True)
            await asyncio.wait([stopping], timeout=LOST)
            return 1
        agent.handle(message)
