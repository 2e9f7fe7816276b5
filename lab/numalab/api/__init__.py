"""The public API of numalab: machines for programs, and what a plug-in registers.

A program boots a machine and runs commands in it:

    from numalab.api import machine

    with machine("ring-4").boot() as guest:
        result = guest.run(["numactl", "--membind=1", "./fill", "64"], memory=True).check()
        assert result.memory_share(1) > 0.9

Exceptions are those of the command line, all of class LabError, with the same messages.

Every kind of entry has one function `register_...`, and one registry with all entries by name:
numalab's own and those of plug-ins. A plug-in is a Python module in the folder `plugins/` of a lab
folder:

    from numalab.api import StudyResults, register_format

    @register_format("verdicts")
    def verdicts(study: StudyResults) -> str:
        '''The verdict of each cell, one a line.'''
        return "".join(f"{report.verdict}\\n" for report in study.reports)

`numalab report RESULTS --format verdicts` then prints it. docs/how-to/write-a-plug-in.md has an
example of each kind.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from numalab.analysis.measures.family import (
    MEASURES,
    MeasureFamily,
    MeasureGroup,
    register_measure,
    register_measures,
)
from numalab.campaign.executors.processes import (
    EXECUTORS,
    Executor,
    ExecutorRequest,
    Finished,
    News,
    register_executor,
)
from numalab.campaign.task import Ended, Execute, Task
from numalab.capture.samples import SOURCES, SampledSource, SampledValue, register_source
from numalab.errors import (
    BuildError,
    GuestLost,
    HostError,
    LabError,
    TopologyMismatch,
    UserError,
    WorkloadFailed,
)
from numalab.hunt.compare.quantity import Quantity, register_difference
from numalab.hunt.finding import Finding
from numalab.hunt.property import (
    PROPERTIES,
    Limit,
    Observation,
    Property,
    register_property,
)
from numalab.hunt.recording import LoadRecording
from numalab.measure import Direction, Measure, MeasureKind
from numalab.plugins import Registry
from numalab.recording.recording import Recording
from numalab.report.document import CellReport, StudyResults
from numalab.report.formats.format import FORMATS, Format, register_format
from numalab.results.layout import Results
from numalab.study.axis import AXES, Axis, RunChange, register_axis
from numalab.topology.distances import Link
from numalab.topology.limits import RuleBroken
from numalab.topology.load import load_topology
from numalab.topology.predict.prediction import Prediction, predict
from numalab.topology.shapes.shape import SHAPES, Count, Shape, register_shape
from numalab.topology.topology import Topology
from numalab.topology.view.placement import Point
from numalab.workload.metric_parsers import PARSERS, Metric, metric_value, register_parser
from numalab.workload.workload_table import MetricTable

REGISTRIES: Mapping[str, Registry[Any]] = MappingProxyType(
    {
        "shapes": SHAPES,
        "measures": MEASURES,
        "formats": FORMATS,
        "properties": PROPERTIES,
        "axes": AXES,
        "sources": SOURCES,
        "parsers": PARSERS,
        "executors": EXECUTORS,
    }
)

# They import plug-ins of numalab, which import the names above.
from numalab.locality.locality import Locality  # noqa: E402
from numalab.programs.command_result import CommandResult  # noqa: E402
from numalab.programs.compare_programs import (  # noqa: E402
    ComparedMeasure,
    ProgramComparison,
    ProgramVariant,
    compare_programs,
    compare_variants,
)
from numalab.programs.machines import GuestSession, LabMachine, machine  # noqa: E402
from numalab.report.build.run_study import run_study  # noqa: E402

__all__ = [
    "AXES",
    "EXECUTORS",
    "FORMATS",
    "MEASURES",
    "PARSERS",
    "PROPERTIES",
    "REGISTRIES",
    "SHAPES",
    "SOURCES",
    "Axis",
    "BuildError",
    "CellReport",
    "CommandResult",
    "ComparedMeasure",
    "Count",
    "Direction",
    "Ended",
    "Execute",
    "Executor",
    "ExecutorRequest",
    "Finding",
    "Finished",
    "Format",
    "GuestLost",
    "GuestSession",
    "HostError",
    "LabError",
    "LabMachine",
    "Limit",
    "Link",
    "LoadRecording",
    "Locality",
    "Measure",
    "MeasureFamily",
    "MeasureGroup",
    "MeasureKind",
    "Metric",
    "MetricTable",
    "News",
    "Observation",
    "Point",
    "Prediction",
    "ProgramComparison",
    "ProgramVariant",
    "Property",
    "Quantity",
    "Recording",
    "Registry",
    "Results",
    "RuleBroken",
    "RunChange",
    "SampledSource",
    "SampledValue",
    "Shape",
    "StudyResults",
    "Task",
    "Topology",
    "TopologyMismatch",
    "UserError",
    "WorkloadFailed",
    "compare_programs",
    "compare_variants",
    "load_topology",
    "machine",
    "metric_value",
    "predict",
    "register_axis",
    "register_difference",
    "register_executor",
    "register_format",
    "register_measure",
    "register_measures",
    "register_parser",
    "register_property",
    "register_shape",
    "register_source",
    "run_study",
]
