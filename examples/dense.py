"""A dense spiking network with an explicit loop over time, trained on Fashion-MNIST.

784-1000-10 leaky neurons see each image for 25 steps; the membranes of the output are pushed apart at every step.

    python examples/dense.py --data fashion-mnist --epochs 1
"""

import argparse
import itertools

import torch
import torch.nn as nn

import snn_ipu as snn
from snn_ipu import functional as SF
from snn_ipu.data import Batches, load


class Net(nn.Module):
    def __init__(self, num_steps=25, num_hidden=1000, beta=0.95):
        super().__init__()
        self.num_steps = num_steps
        self.fc1 = nn.Linear(28 * 28, num_hidden)
        self.lif1 = snn.Leaky(beta=beta)
        self.fc2 = nn.Linear(num_hidden, 10)
        self.lif2 = snn.Leaky(beta=beta)

    def forward(self, x):
        mem1 = self.lif1.init_leaky()
        mem2 = self.lif2.init_leaky()
        spk2_rec, mem2_rec = [], []
        for _ in range(self.num_steps):
            spk1, mem1 = self.lif1(self.fc1(x), mem1)
            spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
            spk2_rec.append(spk2)
            mem2_rec.append(mem2)
        return torch.stack(spk2_rec), torch.stack(mem2_rec)


def accuracy(net, images, labels, batch_size=500):
    correct = 0.0
    with torch.no_grad():
        for x, y in Batches(images, labels, batch_size, shuffle=False):
            spk_rec, _ = net(x.flatten(1))
            correct += SF.accuracy_rate(spk_rec, y) * len(y)
    return correct / len(labels)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="fashion-mnist-mini")
    parser.add_argument("--data-root")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batches", type=int, help="stop an epoch early")
    parser.add_argument("--tests", type=int, help="test on the first images only")
    args = parser.parse_args(arguments)

    data = load(args.data, args.data_root)
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4, betas=(0.9, 0.999))
    loss_fn = nn.CrossEntropyLoss()
    train = Batches(data.train_images, data.train_labels, 128, drop_last=True)

    result = 0.0
    for epoch in range(args.epochs):
        for x, y in itertools.islice(train.epoch(epoch), args.batches):
            _, mem_rec = net(x.flatten(1))
            loss = sum(loss_fn(mem, y) for mem in mem_rec)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        result = accuracy(net, data.test_images[: args.tests], data.test_labels[: args.tests])
        print(f"epoch {epoch}: loss {loss.item():.2f}, test accuracy {result:.1%}", flush=True)
    return result


if __name__ == "__main__":
    main()
