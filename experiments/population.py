"""Accuracy and time by population size and time steps: what `snn-ipu population` runs, with the same options.

python experiments/population.py --quick
"""

from snn_ipu.cli.population import command

if __name__ == "__main__":
    command()
