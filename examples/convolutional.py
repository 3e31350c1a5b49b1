"""A convolutional spiking network whose neurons keep their state, trained on Fashion-MNIST.

12C5-MP2-64C5-MP2-1024FC10 in one nn.Sequential; the loop over time calls it once per step.

    python examples/convolutional.py --data fashion-mnist --epochs 1
"""

import argparse
import itertools

import torch
import torch.nn as nn

import snn_ipu as snn
from snn_ipu import functional as SF
from snn_ipu import surrogate, utils
from snn_ipu.data import Batches, load


def make_net(beta=0.5):
    spike_grad = surrogate.fast_sigmoid(slope=25)
    return nn.Sequential(
        nn.Conv2d(1, 12, 5),
        nn.MaxPool2d(2),
        snn.Leaky(beta=beta, spike_grad=spike_grad, init_hidden=True),
        nn.Conv2d(12, 64, 5),
        nn.MaxPool2d(2),
        snn.Leaky(beta=beta, spike_grad=spike_grad, init_hidden=True),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 10),
        snn.Leaky(beta=beta, spike_grad=spike_grad, init_hidden=True, output=True),
    )


def forward_pass(net, num_steps, x):
    utils.reset(net)
    spk_rec, mem_rec = [], []
    for _ in range(num_steps):
        spk_out, mem_out = net(x)
        spk_rec.append(spk_out)
        mem_rec.append(mem_out)
    return torch.stack(spk_rec), torch.stack(mem_rec)


def accuracy(net, num_steps, images, labels, batch_size=250):
    correct = 0.0
    net.eval()
    with torch.no_grad():
        for x, y in Batches(images, labels, batch_size, shuffle=False):
            spk_rec, _ = forward_pass(net, num_steps, x)
            correct += SF.accuracy_rate(spk_rec, y) * len(y)
    net.train()
    return correct / len(labels)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="fashion-mnist-mini")
    parser.add_argument("--data-root")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batches", type=int, help="stop an epoch early")
    parser.add_argument("--tests", type=int, help="test on the first images only")
    args = parser.parse_args(arguments)

    data = load(args.data, args.data_root)
    torch.manual_seed(0)
    net = make_net()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3, betas=(0.9, 0.999))
    loss_fn = SF.ce_rate_loss()
    train = Batches(data.train_images, data.train_labels, 128, drop_last=True)

    result = 0.0
    for epoch in range(args.epochs):
        for x, y in itertools.islice(train.epoch(epoch), args.batches):
            spk_rec, _ = forward_pass(net, args.steps, x)
            loss = loss_fn(spk_rec, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        result = accuracy(net, args.steps, data.test_images[: args.tests], data.test_labels[: args.tests])
        print(f"epoch {epoch}: loss {loss.item():.2f}, test accuracy {result:.1%}", flush=True)
    return result


if __name__ == "__main__":
    main()
