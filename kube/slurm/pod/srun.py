"""srun: it reads its options, asks the first pod's program for a step, and passes
on what the tasks write."""
import asyncio
import json
import os
import re
import signal
import stat
import sys

from wire import DIR, LINE, Channel, number, pattern, text


class Usage(Exception):
    pass


def options(args):
    """Splits what follows srun into options and the command."""
    with open(os.path.join(DIR, "options.json")) as f:
        known = json.load(f)
    long = {k["long"]: k for k in known}
    short = {k["short"]: k for k in known if "short" in k}
    given, rest = {}, list(args)

    def take(k, value, name):
        if k["as"] == "refused":
            raise Usage("%s: %s" % (name, k["instead"]))
        given[k["long"]] = value

    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            name, eq, value = word[2:].partition("=")
            k = long.get(name)
            if k is None:
                raise Usage("unrecognized option '--%s'" % name)
            if k.get("value") and not eq:
                if not rest:
                    raise Usage("--%s: expected a value" % name)
                value = rest.pop(0)
            take(k, value if k.get("value") or eq else "", "--" + name)
            continue
        letters = word[1:]
        while letters:
            k, letters = short.get(letters[0]), letters[1:]
            if k is None:
                raise Usage("invalid option in '%s'" % word)
            if not k.get("value") and not k.get("optional"):
                take(k, "", "--" + k["long"])
                continue
            value, letters = letters.lstrip("="), ""
            if k.get("value") and not value:
                if not rest:
                    raise Usage("%s: expected a value" % word)
                value = rest.pop(0)
            take(k, value, "--" + k["long"])
    return given, rest


def gpu_count(value):
    """The GPUs of gpu:a100:2, a100:2, gpu:2, 2 or none."""
    n = 0
    for part in value.split(","):
        words = part.split(":")
        if part in ("none", "") or words[0] in ("shard", "mps"):
            continue
        n += int(words[-1]) if words[-1].isdigit() else 1
    return n


def whole(given, name, default=0):
    if name not in given:
        return default
    value = given[name].split("-")[-1] if name == "nodes" else given[name]
    if not value.isdigit():
        raise Usage("--%s: expected a whole number; found '%s'" % (name, given[name]))
    return int(value)


def request(args):
    """What srun asks for."""
    given, argv = options(args)
    if not argv:
        raise Usage("expected a command; found nothing")
    env = dict(os.environ)
    if "export" in given:
        env = exported(given["export"], env)
    if given.get("mpi", "none") not in ("none", "list"):
        raise Usage("--mpi=%s: there is no PMI between pods: launch with torchrun, or use an MPIJob" % given["mpi"])
    if given.get("distribution", "block").split(":")[0] not in ("block", "*"):
        raise Usage("--distribution=%s: expected block: tasks fill one node after the other" % given["distribution"])
    per_node = whole(given, "ntasks-per-node") or whole(given, "tasks-per-node")
    own_gpus = [k for k in ("gpus-per-task", "gpus-per-node", "gres", "gpus", "ntasks-per-gpu") if k in given]
    inherits = not own_gpus
    tasks, nodes = whole(given, "ntasks"), whole(given, "nodes")
    o = {
        "argv": argv, "environ": env, "cwd": os.path.join(os.getcwd(), given.get("chdir", "")).rstrip("/") or "/",
        "nodes": nodes, "tasks": tasks, "nodelist": given.get("nodelist", ""), "exclude": given.get("exclude", ""), "relative": whole(given, "relative"),
        "per_node": per_node or number("MUSTER_TASKS_PER_NODE", 1), "per_node_given": bool(per_node),
        "cpus": whole(given, "cpus-per-task") or max(1, number("SLURM_CPUS_PER_TASK", 1)), "cpus_given": "cpus-per-task" in given,
        "overlap": "overlap" in given, "gpus_given": bool(own_gpus),
        "gpus_per_task": gpu_count(given["gpus-per-task"]) if "gpus-per-task" in given else number("MUSTER_GPUS_PER_TASK") if inherits else 0,
        "gpus_per_node": max(gpu_count(given.get(k, "none")) for k in ("gpus-per-node", "gres")),
        "tasks_per_gpu": whole(given, "ntasks-per-gpu") or (number("MUSTER_TASKS_PER_GPU") if inherits else 0),
        "kill": given.get("kill-on-bad-exit", os.environ.get("SLURM_KILL_BAD_EXIT", "0")) not in ("0",), "label": "label" in given, "files": {},
        "limit": seconds(given["time"]) if "time" in given else 0, "patience": whole(given, "wait"),
        "mode": "ab" if given.get("open-mode") == "append" else "wb",
    }
    if "gpus" in given:  # of the step
        total, on = gpu_count(given["gpus"]), nodes or (1 if tasks == 1 else number("SLURM_NNODES", 1))
        if total % on:
            raise Usage("--gpus: expected a multiple of the number of nodes, %d; found %d" % (on, total))
        o["gpus_per_node"] = total // on
    bind = given.get("gpu-bind", "").replace("verbose,", "")
    if bind.startswith("single:"):
        o["tasks_per_gpu"], o["gpus_per_task"] = int(bind[7:]), 0
    elif bind.startswith("per_task:"):
        o["gpus_per_task"] = int(bind[9:])
    elif bind == "none":
        o["tasks_per_gpu"] = o["gpus_per_task"] = 0
    elif bind not in ("", "closest", "verbose"):
        raise Usage("--gpu-bind=%s: expected none, closest, single:TASKS or per_task:GPUS" % bind)
    return o, given


def seconds(value):
    """A time as Slurm writes it: minutes, hours:minutes:seconds, days-hours…"""
    m = re.match(r"^(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?$", value)
    if not m:
        raise Usage("--time: expected a time such as 90 (minutes) or 1:30:00; found '%s'" % value)
    days, *parts = m.groups()
    parts = [int(p) for p in parts if p is not None]
    if days is None:
        parts = {1: [0] + parts, 2: [0] + parts}.get(len(parts), parts)
    return int(days or 0) * 86400 + sum(p * unit for p, unit in zip(parts, (3600, 60, 1)))


def exported(names, env):
    """The environment of --export: ALL, NONE, or names and values."""
    keep, extra = None, {}
    for name in names.split(","):
        key, eq, value = name.partition("=")
        if eq:
            extra[key] = value
        elif name == "ALL":
            keep = dict(env)
        elif name not in ("NONE", "NIL") and name in env:
            extra[name] = env[name]
    if keep is None:
        keep = {k: v for k, v in env.items() if k.startswith(("SLURM_", "MUSTER_")) or k == "PATH"}
    keep.update(extra)
    return keep


async def srun(args):
    if "MUSTER_SOCKET" not in os.environ:
        print("srun: error: expected to be run by the script of a job, in its first pod", file=sys.stderr)
        return 1
    try:
        o, given = request(args)
    except (Usage, ValueError) as e:
        print("srun: error: %s" % e, file=sys.stderr)
        return 1
    to, own = {1: sys.stdout.buffer, 2: sys.stderr.buffer}, {}
    for fd, name in ((1, "output"), (2, "error")):
        file = given.get(name, "")
        if file in ("", "all"):
            continue
        if file == "none":
            file = "/dev/null"
        if re.search(r"%\d*[tnN]", file):
            o["files"][str(fd)] = file  # one for each task or node, which write it there
        else:
            values = {"j": os.environ.get("SLURM_JOB_ID", ""), "x": os.environ.get("SLURM_JOB_NAME", ""), "u": os.environ.get("USER", ""), "J": os.environ.get("SLURM_JOB_ID", "")}
            own[fd] = to[fd] = open(os.path.join(o["cwd"], pattern(file, values)), o["mode"])
    if 1 in own and 2 not in own and "2" not in o["files"]:
        to[2] = to[1]
    source = None
    if given.get("input", "all") not in ("all", "none"):
        source = open(given["input"], "rb")
    elif given.get("input") != "none":
        # A terminal and /dev/null have nothing to pass on.
        try:
            mode = os.fstat(0).st_mode
        except OSError:
            mode = 0
        if stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode):
            source = sys.stdin.buffer
    o["input"] = source is not None
    reader, writer = await asyncio.open_unix_connection(os.environ["MUSTER_SOCKET"], limit=LINE)
    channel, loop = Channel(reader, writer), asyncio.get_event_loop()
    channel.send(o)
    worst, started = 0, False

    def signalled(n):
        if started:
            channel.send({"do": "signal", "signal": int(n)})
        elif n in (signal.SIGINT, signal.SIGTERM):
            os._exit(128 + n)  # nothing runs yet

    for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT):
        loop.add_signal_handler(n, signalled, n)
    while True:
        message = await channel.receive()
        if message is None:
            break
        if "failed" in message:
            print("srun: error: Unable to create step: %s" % message["failed"], file=sys.stderr)
            return 1
        if "started" in message:
            started = True
            if source:
                asyncio.ensure_future(feed(channel, source, loop))
        elif "data" in message:
            data = message["data"]
            if o["label"] and "rank" in message:
                data = "".join("%d: %s" % (message["rank"], line) for line in data.splitlines(True))
            if not write(to[message["fd"]], data.encode("utf-8", "surrogateescape")):
                channel.send({"do": "signal", "signal": int(signal.SIGKILL)})
        elif "exit" in message and message["exit"]:
            code = message["exit"]
            how = "Exited with exit code %d" % code if code > 0 else signal.Signals(-code).name
            worst = max(worst, code if code > 0 else 128 - code)
            write(sys.stderr.buffer, b"srun: error: task %d: %s\n" % (message["rank"], how.encode()))
    return worst


def write(to, data):
    """Writes to a file. False: nobody reads it any longer, and what comes later is dropped."""
    try:
        to.write(data)
        to.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), to.fileno())
        return False
    return True


async def feed(channel, source, loop):
    """Passes what srun reads to all tasks."""
    while True:
        data = await loop.run_in_executor(None, source.read1, 1 << 16)
        channel.send({"do": "input", "data": text(data)})
        if not data:
            return
