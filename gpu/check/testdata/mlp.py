# Copyright The Muster Authors. SPDX-License-Identifier: Apache-2.0
"""A training with PyTorch that takes the commands of gpu/fake/trainer.c and answers as that does.

So the same experiments run on it: mlp.py DEVICE launches|graphs. With graphs, a step is a CUDA graph.

    alloc BYTES          -> alloc N
    copies N BYTES       -> copied X, GB/s to pinned host memory
    left                 -> left BYTES, of the GPU
    train _ _ STEPS      -> step K after every tenth step, then sum X, of all losses
"""

import hashlib
import os
import sys
import time

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # else products are not the same each time

import torch

device = torch.device(sys.argv[1])
graphs = sys.argv[2] == "graphs"
torch.use_deterministic_algorithms(True)
torch.manual_seed(1)
model = torch.nn.Sequential(
    torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(2048, 512)
).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, **({"capturable": True} if graphs else {}))
inputs, targets = torch.randn(2, 64, 512, device=device)
memory = []


def step():
    optimizer.zero_grad(set_to_none=not graphs)
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.detach()


def captured():
    """Returns a function that does a step by a graph."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):  # what is allocated at the first steps is not part of the graph
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay():
        graph.replay()
        return loss

    return replay


def train(steps):
    losses = hashlib.sha256()
    one = captured() if graphs else step
    for k in range(1, steps + 1):
        losses.update(one().item().hex().encode())
        if k % 10 == 0:
            print("step", k, flush=True)
    print("sum", losses.hexdigest()[:16], flush=True)


print("ready", os.getpid(), flush=True)
for line in sys.stdin:
    match line.split():
        case ["alloc", count]:
            memory.append(torch.zeros(int(count), dtype=torch.uint8, device=device))
            print("alloc", len(memory) - 1, flush=True)
        case ["copies", n, count]:
            host = torch.empty(int(count), dtype=torch.uint8, pin_memory=True)
            began = time.monotonic()
            host.copy_(memory[int(n)][: int(count)])
            print("copied", int(count) / 1e9 / (time.monotonic() - began), flush=True)
        case ["left"]:
            print("left", torch.cuda.mem_get_info()[0], flush=True)
        case ["train", _, _, steps]:
            train(int(steps))
