"""What runs in the first pod: the script, and the steps for which it asks."""
import asyncio
import hmac
import os
import signal
import socket
import sys
import tempfile

from agent import Agent
from wire import DIR, LINE, LOST, Channel, hostnames, number, pattern, proof


class Node:
    def __init__(self, index, name, slots, gpus):
        self.index, self.name = index, name
        self.slots, self.gpus = slots, list(range(gpus))  # that no step has
        self.send = None  # takes messages, once the node is there
        self.lost = False


def layout(nodes, o):
    """Which nodes a step has, and how many tasks on each: [(node, tasks)]. The
    tasks are divided evenly, the first nodes have one more. Raises ValueError."""
    named = hostnames(o["nodelist"]) if o["nodelist"] else []
    without = hostnames(o["exclude"]) if o["exclude"] else []
    is_in = lambda n, names: any(x in (n.name, n.name.split(".")[0]) for x in names)
    for x in named:
        if not any(is_in(n, [x]) for n in nodes):
            raise ValueError("--nodelist: the job has no node %s" % x)
    may = [n for n in nodes[o["relative"]:] if not is_in(n, without)]
    may.sort(key=lambda n: not is_in(n, named))  # stable: those named first
    count = o["nodes"] or max(len(named), 0) or len(may)
    if count > len(may):
        raise ValueError("expected at most %d nodes; found %d" % (len(may), count))
    per = o["per_node"]
    tasks = o["tasks"] or count * per
    if not o["nodes"] and not named:
        count = min(count, tasks)
    if tasks < count:
        print("srun: Warning: can't run %d processes on %d nodes, setting nnodes to %d" % (tasks, count, tasks), file=sys.stderr)
        count = tasks
    if o["per_node_given"] and o["tasks"] > count * per:
        raise ValueError("expected at most %d tasks, %d for each node; found %d" % (count * per, per, o["tasks"]))
    chosen = sorted(may[:count], key=lambda n: n.index)
    return [(n, tasks // count + (1 if i < tasks % count else 0)) for i, n in enumerate(chosen)]


def repeated(counts):
    """Tasks per node as Slurm writes them: 2(x3),1."""
    out = []
    for c in counts:
        if out and out[-1][0] == c:
            out[-1][1] += 1
        else:
            out.append([c, 1])
    return ",".join("%d(x%d)" % (c, n) if n > 1 else str(c) for c, n in out)


class Batch:
    """Runs the script, and the steps for which its sruns ask."""

    def __init__(self):
        self.slots = per = number("MUSTER_TASKS_PER_NODE", 1) * max(1, number("SLURM_CPUS_PER_TASK", 1))  # of a node: its CPUs
        names = os.environ["SLURM_JOB_NODELIST"].split(",")
        self.nodes = [Node(i, n, per, number("SLURM_GPUS_ON_NODE")) for i, n in enumerate(names)]
        self.base = dict(os.environ)
        self.steps, self.count = {}, 0
        self.changed = asyncio.Condition()
        self.agent = Agent(self.told, self.flush)
        self.nodes[0].send = self.agent.handle
        if len(self.nodes) > 1:
            with open(os.path.join(DIR, "key")) as f:
                self.key = f.read().strip()

    async def flush(self):
        for s in list(self.steps.values()):
            await s.reply.flush()

    async def notify(self):
        async with self.changed:
            self.changed.notify_all()

    # A follower.

    async def joins(self, reader, writer):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        channel, nonce = Channel(reader, writer), os.urandom(16).hex()
        channel.send({"nonce": nonce})
        try:
            hello = await asyncio.wait_for(channel.receive(), 30)
            index = hello["node"]
            known = 0 < index < len(self.nodes) and hmac.compare_digest(hello["proof"], proof(self.key, "node%d" % index, nonce))
            answer = proof(self.key, "batch", hello["nonce"])
        except (asyncio.TimeoutError, KeyError, TypeError, ValueError):
            known = False
        if not known or self.nodes[index].send:
            writer.close()
            return
        node = self.nodes[index]
        channel.send({"proof": answer})
        node.send = channel.send
        await self.notify()
        while True:
            message = await channel.receive()
            if message is None or "leaving" in message:
                break
            self.told(message)
            await self.flush()
        node.lost = True
        await self.lost(node)
        writer.close()

    async def lost(self, node):
        steps = [s for s in self.steps.values() if any(n is node for n in s.at.values())]
        for s in steps:
            s.reply.send({"fd": 2, "data": "srun: error: node %s is lost: the job waits to be started again\n" % node.name})
        await self.notify()
        if steps:
            await asyncio.sleep(LOST)
        for s in steps:
            for rank, n in list(s.at.items()):
                if n is node:
                    self.told({"step": s.id, "rank": rank, "exit": 1})

    def told(self, message):
        s = self.steps.get(message["step"])
        if s is None:
            return
        s.reply.send(message)
        if "exit" in message and s.at.pop(message["rank"], None):
            if message["exit"] and s.kill:
                self.signal(s, signal.SIGTERM)
            if not s.at:
                s.done.set()
            elif s.patience:
                self.later(s, s.patience)
                s.patience = 0

    # A step.

    def later(self, step, seconds):
        """Ends a step at that time: it is asked, and killed half a minute later."""
        loop = asyncio.get_event_loop()
        loop.call_later(seconds, self.signal, step, signal.SIGTERM)
        loop.call_later(seconds + 30, self.signal, step, signal.SIGKILL)

    def signal(self, step, number):
        for node in set(step.at.values()):
            node.send({"do": "signal", "step": step.id, "signal": number})

    async def asked(self, reader, writer):
        """Serves an srun."""
        channel = Channel(reader, writer)
        o = await channel.receive()
        if o is None:
            return
        try:
            where = layout(self.nodes, o)
            need = [gpus_for(o, count) for _, count in where]
            for (node, _), gpus in zip(where, need):
                if gpus > number("SLURM_GPUS_ON_NODE"):
                    raise ValueError("expected at most the %d GPUs that the job has on a node; found %d" % (number("SLURM_GPUS_ON_NODE"), gpus))
        except ValueError as e:
            channel.send({"failed": str(e)})
            return writer.close()
        step = Step(self.count, channel, o)
        self.count += 1
        gone = asyncio.ensure_future(self.listen(channel, step))
        take = [0 if o["overlap"] else min(self.slots, count * o["cpus"]) for _, count in where]
        told, late = False, asyncio.get_event_loop().time() + 10
        async with self.changed:
            while not gone.done() and not all(n.send and not n.lost and n.slots >= t and len(n.gpus) >= g for (n, _), t, g in zip(where, take, need)):
                missing = [n.name for n, _ in where if not n.send or n.lost]
                if not told and (not missing or asyncio.get_event_loop().time() >= late):
                    told = True
                    why = "waiting for the pods of nodes " + ",".join(missing) if missing else "Job step creation temporarily disabled, retrying (Requested nodes are busy)"
                    channel.send({"fd": 2, "data": "srun: %s\n" % why})
                try:
                    await asyncio.wait_for(self.changed.wait(), 10)
                except asyncio.TimeoutError:
                    pass
            if not gone.done():
                devices = []
                for (n, _), t, g in zip(where, take, need):
                    n.slots -= t
                    devices.append(n.gpus[:g])
                    n.gpus = n.gpus[g:]
        if gone.done():
            return writer.close()
        self.start(step, o, where, devices)
        await asyncio.wait([gone, asyncio.ensure_future(step.done.wait())], return_when=asyncio.FIRST_COMPLETED)
        if not step.done.is_set():  # srun was killed
            self.signal(step, signal.SIGKILL)
            await step.done.wait()
        del self.steps[step.id]
        for (n, _), t, d in zip(where, take, devices):
            n.slots += t
            n.gpus = sorted(n.gpus + d)
        await self.notify()
        await channel.flush()
        writer.close()

    async def listen(self, channel, step):
        while True:
            message = await channel.receive()
            if message is None:
                await self.notify()
                return
            message["step"] = step.id
            for node in set(step.at.values()):
                node.send(message)

    def start(self, step, o, where, devices):
        env = {k: v for k, v in o["environ"].items() if self.base.get(k) != v and k != "MUSTER_SOCKET"}
        unset = [k for k in self.base if k not in o["environ"]]
        total = sum(count for _, count in where)
        common = {
            "SLURM_STEP_ID": step.id, "SLURM_STEPID": step.id, "SLURM_NTASKS": total, "SLURM_NPROCS": total, "SLURM_STEP_NUM_TASKS": total,
            "SLURM_STEP_NUM_NODES": len(where), "SLURM_NNODES": len(where), "SLURM_STEP_NODELIST": ",".join(n.name for n, _ in where),
            "SLURM_STEP_TASKS_PER_NODE": repeated([c for _, c in where]), "SLURM_TASKS_PER_NODE": repeated([c for _, c in where]),
            "SLURM_LAUNCH_NODE_IPADDR": self.nodes[0].name,
        }
        if o["cpus_given"]:
            common["SLURM_CPUS_PER_TASK"] = o["cpus"]
        env.update((k, str(v)) for k, v in common.items())
        self.steps[step.id] = step
        rank, runs = 0, []
        for at, ((node, count), has) in enumerate(zip(where, devices)):
            tasks = []
            for local in range(count):
                own = {"SLURM_PROCID": rank, "SLURM_LOCALID": local, "SLURM_NODEID": at, "SLURM_GTIDS": ",".join(str(rank - local + i) for i in range(count))}
                seen = visible(o, has, local)
                if seen is not None:
                    own["CUDA_VISIBLE_DEVICES"] = own["SLURM_STEP_GPUS"] = ",".join(map(str, seen))
                values = {"j": o["environ"].get("SLURM_JOB_ID", ""), "J": "%s.%d" % (o["environ"].get("SLURM_JOB_ID", ""), step.id), "s": step.id,
                          "N": node.name, "n": at, "t": rank, "x": os.environ.get("SLURM_JOB_NAME", ""), "u": o["environ"].get("USER", "")}
                files = {fd: pattern(name, values) for fd, name in o["files"].items()}
                tasks.append({"rank": rank, "env": {k: str(v) for k, v in own.items()}, "files": files, "mode": o["mode"]})
                step.at[rank] = node
                rank += 1
            runs.append((node, tasks))
        step.reply.send({"started": True})
        if o["limit"]:
            self.later(step, o["limit"])
        for node, tasks in runs:
            node.send({"do": "run", "step": step.id, "argv": o["argv"], "cwd": o["cwd"], "env": env, "unset": unset, "input": o["input"], "tasks": tasks})

    # The script.

    async def run(self, argv):
        """Runs the script, and returns its exit code."""
        loop = asyncio.get_event_loop()
        box = tempfile.mkdtemp(prefix="muster-")
        env = dict(self.base, MUSTER_SOCKET=os.path.join(box, "srun"))
        server = await asyncio.start_unix_server(self.asked, env["MUSTER_SOCKET"], limit=LINE)
        servers = [server]
        if len(self.nodes) > 1:
            port = int(os.environ["MUSTER_BATCH_ADDRESS"].rsplit(":", 1)[1])
            servers.append(await asyncio.start_server(self.joins, None, port, limit=LINE))
        script = await asyncio.create_subprocess_exec(*argv, env=env, stdin=asyncio.subprocess.DEVNULL, start_new_session=True)

        def stop(*_):
            self.agent.signal(signal.SIGTERM)
            try:
                os.killpg(script.pid, signal.SIGTERM)
            except OSError:
                pass

        loop.add_signal_handler(signal.SIGTERM, stop)
        self.warn(loop, script)
        code = await script.wait()
        for node in self.nodes[1:]:
            if node.send and not node.lost:
                node.send({"do": "end"})
        await self.agent.end()
        try:
            os.killpg(script.pid, signal.SIGKILL)  # what the script left behind
        except OSError:
            pass
        await asyncio.sleep(0)
        return 128 - code if code < 0 else code

    def warn(self, loop, script):
        """Sends the signal of --signal that long before the time limit."""
        asked = os.environ.get("MUSTER_SIGNAL")
        if not asked:
            return
        what, at = asked.split("@")
        name = what.split(":")[-1]
        n = int(name) if name.isdigit() else getattr(signal, "SIG" + name)

        def send():
            if what.startswith("B:"):
                script.send_signal(n)
            else:
                for s in list(self.steps.values()):
                    self.signal(s, n)

        loop.call_later(max(0.0, float(os.environ["MUSTER_TIME_LIMIT"]) - float(at)), send)


class Step:
    def __init__(self, id, reply, o):
        self.id, self.reply, self.kill, self.patience = id, reply, o["kill"], o["patience"]
        self.at = {}  # rank -> node, of tasks that run
        self.done = asyncio.Event()


def gpus_for(o, count):
    """How many GPUs of a node are a step's alone, which has count tasks there."""
    if o["overlap"]:
        return 0
    if o["gpus_per_task"] and o["gpus_given"]:
        return count * o["gpus_per_task"]
    return o["gpus_per_node"] if o["gpus_given"] else 0


def visible(o, has, local):
    """Which GPUs a task sees; None for all that its pod has."""
    devices = has or list(range(number("SLURM_GPUS_ON_NODE")))
    if o["gpus_per_task"]:
        return devices[local * o["gpus_per_task"]:(local + 1) * o["gpus_per_task"]]
    if o["tasks_per_gpu"]:
        return devices[local // o["tasks_per_gpu"]:][:1]
    return has or None
