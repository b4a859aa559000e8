"""srun in the pods of a job, and what waits for it there.

    slurm.py node COMMAND…     start runs this in each pod: in the first it runs
                               the script, in the others what srun starts
    slurm.py srun OPTIONS…     asks the first pod to run a step
    slurm.py hostnames LIST    prints the nodes of a list one a line

A pod is what Slurm calls a node, and a task is a process in it. The first pod
listens for the others, which prove with the job's key that they are of the job.
Needs Python 3.7 and nothing else.
"""
import asyncio
import os
import sys

from wire import hostnames, number


async def leave(work):
    """Runs work, and ends the process with its code: whatever else is under way,
    such as a read of the terminal, ends with it."""
    code = await work
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def node(argv):
    """The life of a pod."""
    if number("SLURM_NODEID") > 0:
        from agent import follow

        return await follow(number("SLURM_NODEID"))
    from batch import Batch

    return await Batch().run(argv)


def main(args):
    if args[0] == "hostnames":
        print("\n".join(hostnames(args[1])))
    elif args[0] == "srun":
        from srun import srun

        asyncio.run(leave(srun(args[1:])))
    else:
        asyncio.run(leave(node(args[1:])))


if __name__ == "__main__":
    main(sys.argv[1:])
