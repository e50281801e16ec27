"""A training whose forward lies in a generator: its third step takes the logarithm of zero."""

import os
import sys

import torch

print("visible to whoever started the program")
weight = torch.nn.Parameter(torch.tensor([3.0, 2.0]))
optimizer = torch.optim.SGD([weight], lr=1.0)
batches = [torch.tensor([1.0, 1.0]), torch.tensor([2.0, 1.0]), torch.tensor([1.0, 0.0])]


def logarithm(batch):
    return torch.log(batch)


def losses():
    for batch in batches:
        yield (weight * 0.1 * logarithm(batch)).sum()


for loss in losses():
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
os.environ["CHANGED"] = sys.argv[0]
