"""The measurements of the IPU study: throughput by device, and accuracy by population size and time steps."""
