"""The same network in snnTorch and here: same seed, same images in the same order; prints accuracy and time of both.

Both take turns on every minibatch, so that other work on the machine slows both. Gradients agree to rounding at the
first minibatch; a spike that rounding flips then sends the two networks different ways, so accuracies agree as those of
two seeds do. Needs snnTorch.

    python examples/compare_snntorch.py --model dense --data fashion-mnist --epochs 1
"""

import argparse
import itertools
import time

import snntorch
import torch
import torch.nn as nn
from snntorch import surrogate
from snntorch import utils as snntorch_utils

import snn_ipu as snn
from snn_ipu import functional as SF
from snn_ipu.data import Batches, load


def dense():
    neuron = {"beta": 0.9, "spike_grad": surrogate.fast_sigmoid(slope=25), "init_hidden": True}
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 1000),
        snntorch.Leaky(**neuron),
        nn.Linear(1000, 10),
        snntorch.Leaky(**neuron),
    )


def convolutional():
    neuron = {"beta": 0.5, "spike_grad": surrogate.fast_sigmoid(slope=25), "init_hidden": True}
    return nn.Sequential(
        nn.Conv2d(1, 12, 5),
        nn.MaxPool2d(2),
        snntorch.Leaky(**neuron),
        nn.Conv2d(12, 64, 5),
        nn.MaxPool2d(2),
        snntorch.Leaky(**neuron),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 10),
        snntorch.Leaky(**neuron),
    )


MODELS = {"dense": dense, "convolutional": convolutional}
RATES = {"dense": 3e-4, "convolutional": 5e-3}


class Side:
    """A network with its optimiser, and a way to run it over time."""

    def __init__(self, name, net, run, rate):
        self.name, self.net, self.run = name, net, run
        self.optimizer = torch.optim.Adam(net.parameters(), lr=rate)
        self.seconds = 0.0

    def step(self, x, y, loss_fn):
        start = time.perf_counter()
        loss = loss_fn(self.run(self.net, x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.seconds += time.perf_counter() - start

    def accuracy(self, images, labels):
        self.net.eval()
        with torch.no_grad():
            batches = Batches(images, labels, 250, shuffle=False)
            correct = sum(SF.accuracy_rate(self.run(self.net, x), y) * len(y) for x, y in batches)
        self.net.train()
        return correct / len(labels)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="dense")
    parser.add_argument("--data", default="fashion-mnist-mini")
    parser.add_argument("--data-root")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batches", type=int, help="stop an epoch early")
    parser.add_argument("--tests", type=int, help="test on the first images only")
    args = parser.parse_args(arguments)

    def step_by_step(net, x):
        snntorch_utils.reset(net)
        return torch.stack([net(x) for _ in range(args.steps)])

    def layer_by_layer(net, x):
        return snn.unroll(net, x, args.steps)[0]

    torch.manual_seed(args.seed)
    theirs = MODELS[args.model]()
    sides = [
        Side("snnTorch", theirs, step_by_step, RATES[args.model]),
        Side("snn_ipu", snn.from_snntorch(theirs), layer_by_layer, RATES[args.model]),
    ]
    data = load(args.data, args.data_root)
    train = Batches(data.train_images, data.train_labels, 128, seed=args.seed, drop_last=True)
    loss_fn = SF.ce_rate_loss()
    # the first call builds the kernels
    x, y = next(train.epoch(0))
    sides[1].run(sides[1].net, x).sum().backward()

    for epoch in range(args.epochs):
        for number, (x, y) in enumerate(itertools.islice(train.epoch(epoch), args.batches)):
            for side in sides if number % 2 else reversed(sides):
                side.step(x, y, loss_fn)
    results = {
        side.name: (side.accuracy(data.test_images[: args.tests], data.test_labels[: args.tests]), side.seconds)
        for side in sides
    }
    for name, (accuracy, seconds) in results.items():
        print(f"{name:10} test accuracy {accuracy:.1%}, {seconds:.1f} s of training")
    print(f"{'':10} {results['snnTorch'][1] / results['snn_ipu'][1]:.1f} times as fast")
    return results


if __name__ == "__main__":
    main()
