"""`snn-ipu report`: tables, charts and one page about runs of the experiments."""

from __future__ import annotations

import click

from ..experiments.report import write_report


@click.command(context_settings={"max_content_width": 110})
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--baseline",
    metavar="DEVICE_OR_LABEL",
    help="What speeds are compared with.  [default: snntorch-cpu, or else the first device that ran]",
)
@click.option("--out", type=click.Path(file_okay=False), help="Folder for the files.  [default: that of the one run]")
def command(runs: tuple[str, ...], baseline: str | None, out: str | None) -> None:
    """Write report.html, results.csv and charts about the run folders RUN of throughput and population."""
    if out is None:
        if len(runs) > 1:
            raise click.UsageError("a report on several runs needs --out, the folder for its files.")
        out = runs[0]
    page, *others = write_report(runs, out, baseline)
    click.echo(f"{page}\nand beside it results.csv and {len(others) - 1} charts")
