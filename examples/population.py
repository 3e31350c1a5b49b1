"""Population codes: many output neurons per class make up for having a single time step.

784-128-N leaky neurons see each image once. With one output neuron per class a class can say no more than one or
nothing; with fifty, it can say how much.

    python examples/population.py --data fashion-mnist --epochs 2
"""

import argparse
import itertools

import torch
import torch.nn as nn

import snn_ipu as snn
from snn_ipu import functional as SF
from snn_ipu import surrogate, utils
from snn_ipu.data import Batches, load

NUM_CLASSES = 10


def make_net(num_outputs, num_hidden=128, beta=0.9):
    grad = surrogate.fast_sigmoid()
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(28 * 28, num_hidden),
        snn.Leaky(beta=beta, spike_grad=grad, init_hidden=True),
        nn.Linear(num_hidden, num_outputs),
        snn.Leaky(beta=beta, spike_grad=grad, init_hidden=True, output=True),
    )


def forward_pass(net, num_steps, x):
    utils.reset(net)
    return torch.stack([net(x)[0] for _ in range(num_steps)])


def accuracy(net, num_steps, code, images, labels, batch_size=500):
    correct = 0.0
    with torch.no_grad():
        for x, y in Batches(images, labels, batch_size, shuffle=False):
            correct += SF.accuracy_rate(forward_pass(net, num_steps, x), y, **code) * len(y)
    return correct / len(labels)


def train(args, data, num_outputs):
    code = {"population_code": True, "num_classes": NUM_CLASSES} if num_outputs > NUM_CLASSES else {}
    torch.manual_seed(args.seed)
    net = make_net(num_outputs)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3, betas=(0.9, 0.999))
    loss_fn = SF.mse_count_loss(correct_rate=1.0, incorrect_rate=0.0, **code)
    batches = Batches(data.train_images, data.train_labels, 128, seed=args.seed, drop_last=True)
    results = []
    for epoch in range(args.epochs):
        for x, y in itertools.islice(batches.epoch(epoch), args.batches):
            loss = loss_fn(forward_pass(net, args.steps, x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        tested = data.test_images[: args.tests], data.test_labels[: args.tests]
        results.append(accuracy(net, args.steps, code, *tested))
        print(f"{num_outputs} outputs, epoch {epoch}: test accuracy {results[-1]:.1%}", flush=True)
    return results


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="fashion-mnist-mini")
    parser.add_argument("--data-root")
    parser.add_argument("--outputs", type=int, nargs="+", default=[10, 500])
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batches", type=int, help="stop an epoch early")
    parser.add_argument("--tests", type=int, help="test on the first images only")
    args = parser.parse_args(arguments)
    data = load(args.data, args.data_root)
    return {num_outputs: train(args, data, num_outputs) for num_outputs in args.outputs}


if __name__ == "__main__":
    main()
