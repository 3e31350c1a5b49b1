"""Images per second by device, network and setting: every point in a process of its own, watched, and journaled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from subprocess import PIPE
from typing import Any, Iterable, Mapping, Sequence

import torch

from .. import ipu
from ..backends import ipu as ipu_backend
from ..cli.progress import SweepProgress
from ..errors import BackendMissingError, RunError, UnsupportedError
from . import machine
from .journal import Journal
from .points import DEVICES, NETWORKS, SWEEPS, Point, plan

HOST_MODEL_NOTE = (
    "No IPU was found: device ipu ran on a model of an IPU on the host. Its times say nothing about any IPU."
)


# On Linux a worker ends with this process, and is the first to be ended where memory runs out.
_WORKER = """
import ctypes, pathlib, runpy, signal, sys
if sys.platform == "linux":
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    pathlib.Path("/proc/self/oom_score_adj").write_text("1000")
runpy.run_module("snn_ipu.experiments.measure", run_name="__main__")
"""


_LARGEST = 1e6


@dataclass(frozen=True)
class Settings:
    """How points are measured.

    Attributes:
        repeats: timed minibatches of a point; fewer, three at least, where they would take over `seconds`.
        timeout: seconds after which a point is ended and recorded as such.
        ipu_clock_ghz: turns an IPU's cycles into seconds.
    """

    repeats: int = 20
    seconds: float = 10.0
    timeout: float = 300.0
    ipu_clock_ghz: float = 1.33

    def __post_init__(self) -> None:
        for name in ("seconds", "timeout", "ipu_clock_ghz"):
            value = getattr(self, name)
            if not 0 < value <= _LARGEST:
                raise UnsupportedError(
                    f"--{name.replace('_', '-')} {value:g}: expected a number above 0 and up to {_LARGEST:g}."
                )


def check_devices(devices: Iterable[str]) -> None:
    """Raises: UnsupportedError for an unknown device, BackendMissingError for one that does not work here."""
    for device in devices:
        if device not in DEVICES:
            raise UnsupportedError(f"--device {device}: expected one of {', '.join(DEVICES)}.")
        if device.endswith("cuda") and not torch.cuda.is_available():
            raise BackendMissingError(f"--device {device}: torch finds no CUDA device. Leave it out.")
        if device.startswith("snntorch") and machine.installed("snntorch") is None:
            raise BackendMissingError(f"--device {device}: snnTorch is not installed. Run pip install snntorch.")
        if device == "ipu":
            missing = ipu_backend.status()
            if missing is not None:
                raise BackendMissingError(f"--device ipu: {missing}. Leave it out.")


def default_devices() -> list[str]:
    """The fastest of this machine's devices, and snnTorch on the same where it is installed."""
    own = "ipu" if ipu.hardware() else "cuda" if torch.cuda.is_available() else "cpu"
    peer = "snntorch-cuda" if own == "cuda" else "snntorch-cpu"
    return [own, peer] if machine.installed("snntorch") else [own]


class Sweep:
    """The points to measure in a folder, and those that the folder already holds.

    Args: networks, sweeps, devices, names as in `points`; threads of the CPU; quick, the small plan; settings.

    Raises: UnsupportedError for unknown names; BackendMissingError for a device that does not work here.
    """

    def __init__(
        self,
        networks: Sequence[str],
        sweeps: Sequence[str],
        devices: Sequence[str],
        threads: int,
        settings: Settings,
        *,
        quick: bool = False,
    ) -> None:
        for option, names, known in (("--network", networks, NETWORKS), ("--sweep", sweeps, tuple(SWEEPS))):
            unknown = [name for name in names if name not in known]
            if unknown:
                raise UnsupportedError(f"{option} {unknown[0]}: expected one of {', '.join(known)}.")
        check_devices(devices)
        networks, sweeps, devices = (list(dict.fromkeys(names)) for names in (networks, sweeps, devices))
        self.settings = settings
        self.plan = plan(networks, sweeps, devices, threads, quick=quick)
        if not self.plan:
            raise UnsupportedError(
                f"--network {' '.join(networks)} --sweep {' '.join(sweeps)}{' --quick' if quick else ''}: no point to "
                "measure. width goes with dsnn, depth with csnn; the quick plan has batch, twin and shares."
            )
        self.options: dict[str, Any] = {
            "network": networks,
            "sweep": sweeps,
            "device": devices,
            "threads": threads,
            "quick": quick,
            **{name: value for name, value in vars(settings).items() if name != "timeout"},
        }
        self.notes = [HOST_MODEL_NOTE] if "ipu" in devices and not ipu.hardware() else []

    def missing(self, results: Iterable[dict[str, Any]], retry: bool = False) -> list[Point]:
        """The points of the plan without a result, in order; with `retry` also those without a measured one.

        Raises: RunError for a record that is none of a point.
        """
        done = set()
        for record in results:
            try:
                point, measured = Point.from_json(record["config"]), record["status"] == "ok"
            except (KeyError, TypeError) as e:
                raise RunError(f"results.jsonl holds a line that is no point of a sweep: {record!r:.100}.") from e
            if measured or not retry:
                done.add(point)
        return [point for point in self.plan if point not in done]

    def run(self, folder: str, progress: SweepProgress, *, retry: bool = False) -> int:
        """Measure what is missing in the folder, and with `retry` what failed before.

        Returns: how many points have no measured result.

        Raises: RunError when the folder holds another sweep or cannot be written, or when no point could be measured.
        """
        with Journal(folder, "throughput", self.options, self.notes) as journal:
            points = self.missing(journal.results, retry)
            progress.skip(len(self.plan) - len(points))
            for point in points:
                progress.begin(str(point))
                answer = watched(self._request(point), self.settings.timeout)
                record = {"config": point.to_json(), "sweeps": self.plan[point], **answer}
                journal.add(record)
                progress.done(f"{point}: {_outcome(record)}")
            failed = len(self.missing(journal.results, retry=True))
            if failed == len(self.plan):
                first = _outcome(journal.results[0])
                raise RunError(
                    f"--out {folder}: none of the {failed} points could be measured; the first: {first}. Mend the "
                    "cause and add --retry to measure them again."
                )
            return failed

    def _request(self, point: Point) -> dict[str, Any]:
        return {
            "point": point.to_json(),
            "repeats": self.settings.repeats,
            "seconds": self.settings.seconds,
            "shares": "shares" in self.plan[point],
            "ipu_clock_ghz": self.settings.ipu_clock_ghz,
        }


def _outcome(record: Mapping[str, Any]) -> str:
    if record["status"] == "ok":
        return f"{record['images_per_second']:,.0f} images/s"
    return f"{record['status']} ({record['reason']})"


def watched(request: dict[str, Any], timeout: float) -> dict[str, Any]:
    """The answer of a process that measures a point, or how it ended without one."""
    with subprocess.Popen(
        [sys.executable, "-c", _WORKER], stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True, start_new_session=True
    ) as process:
        try:
            out, errors = process.communicate(json.dumps(request), timeout=timeout)
        except subprocess.TimeoutExpired:
            _end(process)
            return {"status": "timeout", "reason": f"no result within {timeout:g} s"}
        except BaseException:
            _end(process)
            raise
    if process.returncode == -signal.SIGKILL:
        return {"status": "out of memory", "reason": "ended by SIGKILL, as the system does where memory runs out"}
    if process.returncode != 0:
        last = (errors.strip().splitlines() or ["no message"])[-1]
        return {"status": "failed", "reason": f"exit code {process.returncode}: {last}"}
    answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    return answer


def _end(process: subprocess.Popen[str]) -> None:
    """End a process and all that it started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
