"""Where a neuron runs: each backend takes a `Call` and knows no neuron."""
