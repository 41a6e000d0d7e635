"""What the code of samplers and denoisers may not say, because a GPU would have to wait.

Or because it would be refused there: a tensor that is made without a device lies on the CPU. What
is a tensor is told from annotations and from what torch returns, so a line may escape; what runs on
the pretend device (`test_gpu.py`) does not.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import strop
from strop.instruments.pretend import NOTE

LOOPS = ("samplers", "denoisers")
HERE = "# on the host"
"""What a line says whose tensors never leave the CPU."""
FACTORIES = {"arange", "empty", "eye", "full", "linspace", "ones", "rand", "randint", "randn"}
FACTORIES |= {"randperm", "tensor", "zeros"}
HOST = {
    "denoisers/base.py": {"tensor"},
    "samplers/caches.py": {"tensor"},
    "samplers/ancestral.py": {"ones", "zeros"},
    "samplers/duo.py": {"ones"},
    "samplers/machinery/committing.py": {"linspace"},
    "samplers/machinery/start.py": FACTORIES,
}
"""Tables of the grid and the like, which the host keeps for itself."""
NO_TENSOR = {"device", "finfo", "is_tensor", "is_floating_point", "no_grad", "autocast", "dtype"}
"""Of torch, what gives none."""
LEAVING = {"numpy", "cpu", "tolist", "item"}
"""Methods that turn a tensor into something of the host."""
FACTS = {"numel", "element_size", "is_floating_point", "is_complex", "size", "dim", "stride"}
"""Methods whose answer the host knows anyway."""
VIEWS = {"T", "mT", "values", "indices"}
"""Attributes that are tensors."""
NUMBERS = {"int", "float", "bool", "list"}


class Faults(ast.NodeVisitor):
    """Lines that may not be, in the order of the file."""

    def __init__(self, text: str, name: str) -> None:
        self.lines, self.name, self.found = text.splitlines(), name, list[str]()
        self.tensors: set[str] = set()
        self.making = False
        self.visit(ast.parse(text))

    def fault(self, node: ast.expr, words: str) -> None:
        """Unless the line says so."""
        line = self.lines[(node.end_lineno or node.lineno) - 1]
        if NOTE not in line and HERE not in line:
            self.found.append(f"{self.name}:{node.end_lineno}: {words}")

    def is_tensor(self, node: ast.expr | None) -> bool:
        """As far as one can tell without running it."""
        match node:
            case ast.Name() | ast.Attribute() if ast.unparse(node) in self.tensors:
                return True
            case ast.Attribute(value=value, attr=attr):
                return attr in VIEWS and self.is_tensor(value)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr=attr)):
                return attr.islower() and attr not in NO_TENSOR
            case ast.Call(func=ast.Attribute(value=value, attr=attr)):
                return attr not in LEAVING | FACTS and self.is_tensor(value)
            case (
                ast.Subscript(value=value) | ast.UnaryOp(operand=value) | ast.NamedExpr(value=value)
            ):
                return self.is_tensor(value)
            case ast.BinOp(left=left, right=right):
                return self.is_tensor(left) or self.is_tensor(right)
            case ast.Compare(left=left, ops=ops, comparators=others):
                plain = all(isinstance(one, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for one in ops)
                return not plain and any(self.is_tensor(one) for one in (left, *others))
        return False

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        before = set(self.tensors)
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and _says_tensor(field.annotation):
                self.tensors.add(f"self.{ast.unparse(field.target)}")
        self.generic_visit(node)
        self.tensors = before

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        before, making = set(self.tensors), self.making
        for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            self.tensors.discard(one.arg)
            if _says_tensor(one.annotation):
                self.tensors.add(one.arg)
        self.making = node.name == "__init__"  # weights, which are moved as one
        self.generic_visit(node)
        kept = {one for one in self.tensors if one.startswith("self.")}
        self.tensors, self.making = before | kept, making

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple):
                each = isinstance(node.value, ast.Tuple)
                values = node.value.elts if each else [node.value] * len(target.elts)  # type: ignore[attr-defined]
                pairs = list(zip(target.elts, values, strict=False))
            for name, value in pairs:
                if isinstance(name, (ast.Name, ast.Attribute)):
                    known = ast.unparse(name)
                    (self.tensors.add if self.is_tensor(value) else self.tensors.discard)(known)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        said, func = ast.unparse(node.func), node.func
        kind = said.removeprefix("torch.")
        placed = any(one.arg in ("device", "generator") for one in node.keywords)
        made = said.startswith("torch.") and kind in FACTORIES - HOST.get(self.name, set())
        if made and not placed and not self.making:
            self.fault(func, f"{said} without a device")
        if isinstance(func, ast.Attribute):
            if func.attr in ("item", "cpu"):
                self.fault(func, f".{func.attr}() waits, and does not say so")
            if func.attr == "tolist" and self.is_tensor(func.value):
                self.fault(func, ".tolist() of a tensor waits, and does not say so")
            source = ast.unparse(func.value)
            copied = source.startswith(("torch.from_numpy(", "torch.tensor(", "torch.as_tensor("))
            if func.attr == "to" and copied and self.name != "denoisers/device.py":
                self.fault(func, "a copy that waits; see `upload`")
        if said in NUMBERS and node.args and self.is_tensor(node.args[0]):
            self.fault(node, f"{said}() of a tensor waits, and does not say so")

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.generic_visit(node)
        if not self.is_tensor(node.value):
            return
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for part in parts:
            if isinstance(part, ast.List):
                self.fault(node, "a list as an index is copied, and that waits")
            truth = isinstance(part, ast.Compare) or (
                isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Invert)
            )
            if truth and isinstance(node.ctx, ast.Load) and self.is_tensor(part):
                self.fault(node, "a boolean index waits, and does not say so")

    def visit(self, node: ast.AST) -> None:
        super().visit(node)
        if not isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
            return
        tests = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
        for one in tests:
            if self.is_tensor(one):
                self.fault(one, "the truth of a tensor waits, and does not say so")


def _says_tensor(annotation: ast.expr | None) -> bool:
    """Whether a value may be one: `Tensor`, `Tensor | None`."""
    if annotation is None:
        return False
    words = [one.strip() for one in ast.unparse(annotation).split("|")]
    return any(one in ("Tensor", "torch.Tensor") for one in words)


def test_no_line_waits_without_saying_so() -> None:
    root = Path(strop.__file__).parent
    files = [file for room in LOOPS for file in sorted((root / room).rglob("*.py"))]
    found = [
        one for file in files for one in Faults(file.read_text(), str(file.relative_to(root))).found
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("y = torch.zeros(3)", "without a device"),
        ("y = torch.randn(3)", "without a device"),
        ("y = torch.from_numpy(a).to(device)", "upload"),
        ("y = torch.tensor(a, device=d).to(device)", "upload"),
        ("y = thing.cpu()", ".cpu()"),
        ("y = thing.item()", ".item()"),
        ("y = x.tolist()", ".tolist()"),
        ("y = (x + 1).sum().tolist()", ".tolist()"),
        ("y = int(x.max())", "int()"),
        ("y = bool((x > 0).any())", "bool()"),
        ("z = x * 2\n    y = float(z[0])", "float()"),
        ("y = float(torch.stack(a).mean())", "float()"),
        ("z, y = x.sort()\n    y = float(y[0])", "float()"),
        ("y = x[x > 0]", "boolean index"),
        ("y = x[~x]", "boolean index"),
        ("y = x[[0, 1]]", "a list as an index"),
        ("y = x[:, [0, 1]]", "a list as an index"),
        ("y = 1 if x.any() else 2", "the truth"),
        ("assert a is not None and x.all()", "the truth"),
    ],
)
def test_what_waits_is_noticed(line: str, words: str) -> None:
    text = f"def act(x: Tensor, a, device, thing):\n    {line}\n"
    found = Faults(text, "bad.py").found
    assert len(found) == 1
    assert words in found[0]
    assert not Faults(text.rstrip() + f"  {NOTE}\n", "bad.py").found


@pytest.mark.parametrize(
    "line",
    [
        "y = torch.zeros(3, device=x.device)",
        "y = int(a.max())",
        "y = a[a > 0].tolist()",
        "y = int(x.shape[0]) + int(x.numel())",
        "y = x[a]",
        "y = 1 if x is None else 2",
        "x = on_host(x)\n    y = int(x.max())",
    ],
)
def test_what_does_not_wait_is_let_alone(line: str) -> None:
    text = f"def act(x: Tensor, a):\n    {line}\n"
    assert not Faults(text, "good.py").found
