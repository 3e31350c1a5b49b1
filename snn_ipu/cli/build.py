"""`snn-ipu build`: compile the IPU's custom ops ahead of their first use."""

from __future__ import annotations

import click

from ..backends import ipu


@click.command()
def command() -> None:
    """Compile the custom ops against the enabled Poplar SDK, into SNN_IPU_CACHE_DIR or the user's cache.

    Import does the same where it can; this shows the result, and fills a cache that is to be copied or made read-only.
    """
    click.echo(f"IPU ops: {ipu.build(forced=True)}")
