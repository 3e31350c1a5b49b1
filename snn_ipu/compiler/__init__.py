"""From one neuron step in plain torch to kernels: trace, differentiate, plan what to keep, print."""
