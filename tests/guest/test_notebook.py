"""The notebook of docs/examples runs, and prints what it shows."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from numalab.image.image_artifact import BuiltImage
from numalab.kernel.kernel_build import BuiltKernel

NOTEBOOK = Path(__file__).parents[2] / "docs/examples/memory.ipynb"


def run_cell(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell as Jupyter does: the value of a last expression is its output."""
    tree = ast.parse(source)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, str(NOTEBOOK), "exec"), names)
        return []
    exec(compile(ast.Module(tree.body[:-1], []), str(NOTEBOOK), "exec"), names)
    value = eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)
    text = repr(value).splitlines(keepends=True)
    return [{"data": {"text/plain": text}, "metadata": {}, "output_type": "execute_result"}]


def shapes(outputs: list[dict[str, Any]]) -> list[str]:
    """Return outputs without the digits of their numbers, and the spaces and lines around these."""
    texts = ("".join(output["data"]["text/plain"]) for output in outputs)
    return [re.sub(r"\d+", "0", re.sub(r"[ ─═]+", " ", text)) for text in texts]


def test_the_notebook_prints_what_it_shows(
    kernel: BuiltKernel,
    image: BuiltImage,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(NOTEBOOK.parent)  # as Jupyter does
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    printed = []
    for number, cell in enumerate(cells, start=1):
        outputs = run_cell("".join(cell["source"]), names)
        printed.append([{**output, "execution_count": number} for output in outputs])
    if request.config.getoption("--regenerate"):
        for number, (cell, outputs) in enumerate(zip(cells, printed, strict=True), start=1):
            cell["execution_count"], cell["outputs"] = number, outputs
        NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    # Another version of a package in the image shifts events, and with them the counts.
    assert [shapes(cell["outputs"]) for cell in cells] == [*map(shapes, printed)]
    assert sum(map(len, printed)) == 4
