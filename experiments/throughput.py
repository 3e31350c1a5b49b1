"""Images per second by device, network and setting: what `snn-ipu throughput` runs, with the same options.

python experiments/throughput.py --quick
"""

from snn_ipu.cli.throughput import command

if __name__ == "__main__":
    command()
