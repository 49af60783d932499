"""Conditions on which lanes differ, flattened so that shared work is done once.

When neighbouring elements take different branches, a gang goes through both. Work that siblings
have in common is then done once, under the union of their masks. A tree of nested conditions is
taken apart into its pure equations, equal ones become one, and each gets the set of branches that
need it. Costly equations with the same set stay under a condition of their own, which skips them
when no lane needs them, and lesser work inside it goes along; cheap ones are always computed;
selections put the results together, inside of that condition if there is one: less is left to
choose from on either side.

The result is an ordinary program that computes the same values.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from mixad.kernel.cost import BRANCH_COST, statement_cost
from mixad.kernel.varying import varying_vars
from mixad.scalar.build import Builder
from mixad.scalar.ir import Atom, Block, Const, Equation, If, Line, Program, Statement, Var, While
from mixad.scalar.types import ScalarType

__all__ = ["flatten_divergence"]

_MAX_CONDITION_COST = 64
"""Costlier conditions stay in their places, and are not known in all lanes."""


def flatten_divergence(program: Program, moving: Iterable[int]) -> Program:
    """Flatten divergent conditions of a program of instruction-level and libm ops.

    Conditions with loops or loads inside stay as they are.
    """
    varying = varying_vars(program, moving)
    return _Flattening(program, varying).result()


@dataclass(eq=False)
class _Arm:
    """One side of a condition in a tree; ``cond`` is None for what lies around the tree."""

    index: int
    parent: _Arm | None
    cond: _Node | Atom | None
    taken: bool
    sibling: _Arm | None = None
    inner: list[_Arm] = field(default_factory=list)
    depth: int = field(init=False)

    def __post_init__(self) -> None:
        self.depth = 0 if self.parent is None else 1 + self.parent.depth
        if self.parent is not None:
            self.parent.inner.append(self)


@dataclass(eq=False)
class _Node:
    """An equation of a tree, met once or more often; ``arms`` are the sides that need it.

    ``line`` is the first one that it was met on.
    """

    op: str
    args: tuple[_Node | Atom, ...]
    type: ScalarType
    cost: int
    line: Line | None
    arms: set[_Arm] = field(default_factory=set)


class _Tree:
    """The equations of a tree of conditions, equal ones as one node, in an order that can run."""

    def __init__(self, outside: dict[Var, Atom]) -> None:
        self.root = _Arm(0, None, None, True)
        self._arm_count = 1
        self.nodes: list[_Node] = []
        self.conditions: list[_Node] = []
        self._ifs: list[tuple[If, _Arm, slice]] = []
        self.results: set[_Node | Atom] = set()
        self.users: defaultdict[_Node, set[_Node]] = defaultdict(set)
        self.selections: dict[_Node, tuple[_Arm, _Arm]] = {}  # by the first If that has them
        self._known: dict[object, _Node] = {}
        self._values: dict[Var, _Node | Atom] = dict(outside)

    def value(self, atom: Atom) -> _Node | Atom:
        return atom if isinstance(atom, Const) else self._values[atom]

    def add_if(self, s: If, arm: _Arm) -> None:
        cond, first = self.value(s.cond), len(self.conditions)
        if isinstance(cond, _Node):
            self.conditions.append(cond)
        then, orelse = (_Arm(self._arm_count + k, arm, cond, k == 0) for k in range(2))
        self._arm_count += 2
        then.sibling, orelse.sibling = orelse, then
        ones, others = self.add_block(s.then, then), self.add_block(s.orelse, orelse)
        self._ifs.append((s, arm, slice(first, len(self.conditions))))
        for out, a, b in zip(s.outs, ones, others, strict=True):
            selection = self.node("where", (cond, a, b), out.type, 1, s.line, arm)
            self._values[out] = selection
            self.selections.setdefault(selection, (then, orelse))

    def add_block(self, block: Block, arm: _Arm) -> list[_Node | Atom]:
        for s in block.statements:
            if isinstance(s, If):
                self.add_if(s, arm)
            elif isinstance(s, Equation):
                args = tuple(map(self.value, s.args))
                cost = statement_cost(s)
                self._values[s.out] = self.node(s.op, args, s.out.type, cost, s.line, arm)
        return list(map(self.value, block.results))

    def node(
        self,
        op: str,
        args: tuple[_Node | Atom, ...],
        type: ScalarType,
        cost: int,
        line: Line | None,
        arm: _Arm,
    ) -> _Node:
        node = self._known.get((op, args, type))
        if node is None:
            node = self._known[op, args, type] = _Node(op, args, type, cost, line)
            self.nodes.append(node)
        node.arms.add(arm)
        return node

    def is_used_outside(self, node: _Node, run: Set[_Node]) -> bool:
        """Whether anything but the nodes of a run reads a node."""
        return node in self.results or not self.users[node] <= run

    def settle(self, results: Iterable[Var]) -> None:
        """Reduce each node's arms (two sides of a condition are what is around it); find users."""
        for node in self.nodes:
            node.arms = _join_siblings(node.arms)
        for node in self._feeding(self.conditions):
            node.arms = {self.root}
        self.results = {self.value(v) for v in results}
        for node in self.nodes:
            for arg in node.args:
                if isinstance(arg, _Node):
                    self.users[arg].add(node)

    def sides(self, value: _Node | Atom, arm: _Arm) -> list[tuple[_Node | Atom, _Arm]]:
        """Return what a value is on either side of a condition in an arm; [] if it is no choice."""
        if not isinstance(value, _Node) or value not in self.selections:
            return []
        arms = self.selections[value]
        if arms[0].parent is not arm:
            return []
        return list(zip(value.args[1:], arms, strict=True))

    def closing(self, run: Sequence[_Node]) -> set[_Node]:
        """Return the selections that lead to the results, if all else outside a run goes without.

        That is: nothing else reads one of them, nor what the run computes.
        """
        found, leaves = set[_Node](), set[_Node | Atom]()
        waiting: list[tuple[_Node | Atom, _Arm]] = [(value, self.root) for value in self.results]
        while waiting:
            value, arm = waiting.pop()
            sides = self.sides(value, arm)
            if isinstance(value, _Node) and sides:
                found.add(value)
            else:
                leaves.add(value)
            waiting += sides
        inside = found.union(run)
        goes_without = all(self.users[n] <= found for n in found) and all(
            not self.is_used_outside(n, inside) for n in run if n not in found
        )
        return found if goes_without and not found & leaves else set()

    def condition_costs(self) -> dict[tuple[Var, ...], int]:
        """Return, by the outputs of each If of the tree, the cost of its and its inner conditions.

        The cost is for all lanes, without what is computed around the If anyhow.
        """
        costs = {}
        for s, arm, inner in self._ifs:
            around = {arm, *_ancestors(arm)} - {self.root}
            needed = self._feeding(self.conditions[inner], around)
            costs[s.outs] = sum(n.cost for n in needed)
        return costs

    def _feeding(self, goals: Iterable[_Node], around: Set[_Arm] = frozenset()) -> set[_Node]:
        """Return the nodes that goals are computed from, themselves included.

        Nodes that an arm in ``around`` needs are skipped.
        """
        found: set[_Node] = set()
        waiting = list(goals)
        while waiting:
            node = waiting.pop()
            if node not in found and around.isdisjoint(node.arms):
                found.add(node)
                waiting += [a for a in node.args if isinstance(a, _Node)]
        return found


def _join_siblings(arms: set[_Arm]) -> set[_Arm]:
    arms = set(arms)
    waiting = sorted(arms, key=_depth)
    while waiting:
        arm = waiting.pop()
        if arm in arms and arm.sibling in arms and arm.parent is not None:
            arms -= {arm, arm.sibling}
            arms.add(arm.parent)
            insort(waiting, arm.parent, key=_depth)
    return {a for a in arms if not any(b in arms for b in _ancestors(a))}


def _depth(arm: _Arm) -> int:
    return arm.depth


def _ancestors(arm: _Arm) -> Iterable[_Arm]:
    while arm.parent is not None:
        arm = arm.parent
        yield arm


class _Flattening:
    """One walk over a program, building the flattened one."""

    def __init__(self, program: Program, varying: frozenset[Var]) -> None:
        self.program = program
        self.varying = varying
        self.builder = Builder(program.name)
        self.condition_costs: dict[tuple[Var, ...], int] = {}
        self.names = self.builder.declare(program)

    def result(self) -> Program:
        return self.builder.finish(self.block(self.program.body))

    def value(self, atom: Atom) -> Atom:
        return self.names[atom] if isinstance(atom, Var) else atom

    def block(self, block: Block) -> tuple[Atom, ...]:
        for s in block.statements:
            self.statement(s)
        return tuple(map(self.value, block.results))

    def statement(self, s: Statement) -> None:
        self.builder.line = s.line or self.builder.line
        match s:
            case If() if s.cond in self.varying and self.condition_cost(s) <= _MAX_CONDITION_COST:
                self.emit_tree(s, self.tree(s))
            case If():
                self.copy_if(s)
            case While():
                self.copy_while(s)
            case _:
                self.builder.copy(Block((s,), ()), self.names)

    def copy_if(self, s: If) -> None:
        outs = self.builder.if_(
            self.value(s.cond), lambda: self.block(s.then), lambda: self.block(s.orelse)
        )
        self.names.update(zip(s.outs, outs, strict=True))

    def copy_while(self, s: While) -> None:
        def cond(*carries: Var) -> Atom:
            self.names.update(zip(s.carries, carries, strict=True))
            return self.block(s.cond)[0]

        def body(*carries: Var) -> tuple[Atom, ...]:
            self.names.update(zip(s.carries, carries, strict=True))
            return self.block(s.body)

        inits = [self.value(a) for a in s.inits]
        outs = self.builder.while_(inits, cond, body, is_short=s.is_short)
        self.names.update(zip(s.outs, outs, strict=True))

    # -- trees -------------------------------------------------------------------------------------

    def condition_cost(self, s: If) -> float:
        """Return what it costs to know all conditions of a tree; infinite for what is no tree.

        It is found for all of a tree at once: a long chain of conditions is a deep tree.
        """
        if not s.outs or s.outs not in self.condition_costs:
            if not _is_tree(s):
                return math.inf
            self.condition_costs |= self.tree(s).condition_costs()
        return self.condition_costs[s.outs]

    def tree(self, s: If) -> _Tree:
        tree = _Tree(self.names)
        tree.add_if(s, tree.root)
        return tree

    def emit_tree(self, s: If, tree: _Tree) -> None:
        tree.settle(s.outs)
        atoms: dict[_Node, Atom] = {}
        runs = list(_runs(tree.nodes))
        skipped = [run for run in runs if _is_skipped(*run)]
        closing = tree.closing(skipped[0][1]) if len(skipped) == 1 else set()
        for arms, run in runs:
            if not closing or not _is_skipped(arms, run):
                self.emit_run(arms, [n for n in run if n not in closing], tree, atoms)
        results = [tree.value(out) for out in s.outs]
        if closing:
            ((arms, run),) = skipped
            chosen = [value for value in dict.fromkeys(results) if isinstance(value, _Node)]
            self.emit_closing(arms, [n for n in run if n not in closing], chosen, tree, atoms)
        for out, value in zip(s.outs, results, strict=True):
            self.names[out] = atoms[value] if isinstance(value, _Node) else value

    def emit_closing(
        self,
        arms: Set[_Arm],
        run: Sequence[_Node],
        results: Sequence[_Node],
        tree: _Tree,
        atoms: dict[_Node, Atom],
    ) -> None:
        """Emit nodes that arms need and all results, under a condition that tells which arms."""

        def emit(is_taken: bool) -> list[Atom]:
            if is_taken:
                self.emit_nodes(run, atoms)
            return [self.choose(v, tree.root, arms, is_taken, tree, atoms) for v in results]

        outs = self.builder.if_(self.guard(arms, atoms), lambda: emit(True), lambda: emit(False))
        atoms.update(zip(results, outs, strict=True))

    def choose(
        self,
        value: _Node | Atom,
        arm: _Arm,
        arms: Set[_Arm],
        is_taken: bool,
        tree: _Tree,
        atoms: dict[_Node, Atom],
    ) -> Atom:
        """Return a result where it is known that some arms are taken, or that none of them is."""
        if not isinstance(value, _Node):
            return value
        sides = [
            self.choose(inner, side, arms, is_taken, tree, atoms)
            for inner, side in tree.sides(value, arm)
            if _may_be_taken(side, arms, is_taken)
        ]
        if not sides:
            return atoms[value]
        if len(sides) == 1:
            return sides[0]
        self.builder.line = value.line or self.builder.line
        cond = value.args[0]
        return self.builder.op("where", atoms[cond] if isinstance(cond, _Node) else cond, *sides)

    def emit_nodes(self, run: Sequence[_Node], atoms: dict[_Node, Atom]) -> None:
        """Emit nodes, each after what it is computed from."""
        for node in run:
            self.builder.line = node.line or self.builder.line
            args = (atoms[a] if isinstance(a, _Node) else a for a in node.args)
            atoms[node] = self.builder.op(node.op, *args, type=node.type)

    def emit_run(
        self, arms: Set[_Arm], run: Sequence[_Node], tree: _Tree, atoms: dict[_Node, Atom]
    ) -> None:
        """Emit nodes that arms need: under their condition if that can save something."""
        if not _is_skipped(arms, run):
            self.emit_nodes(run, atoms)
            return
        members = set(run)
        wanted = [n for n in run if tree.is_used_outside(n, members)]

        def emit() -> list[Atom]:
            self.emit_nodes(run, atoms)
            return [atoms[n] for n in wanted]

        zeros = [self.builder.const(0, n.type) for n in wanted]
        outs = self.builder.if_(self.guard(arms, atoms), emit, lambda: zeros)
        atoms.update(zip(wanted, outs, strict=True))

    def guard(self, arms: Set[_Arm], atoms: dict[_Node, Atom]) -> Atom:
        """Return the condition that some arm is taken."""
        paths = [self.path(arm, arms, atoms) for arm in sorted(arms, key=lambda a: a.index)]
        guard = paths[0]
        for path in paths[1:]:
            guard = self.builder.op("or", guard, path)
        return guard

    def path(self, arm: _Arm, others: Set[_Arm], atoms: dict[_Node, Atom]) -> Atom:
        """Return the condition that an arm is taken, but for what others beside it say already."""
        cond = atoms[arm.cond] if isinstance(arm.cond, _Node) else arm.cond
        assert cond is not None
        assert arm.parent is not None
        own = cond if arm.taken else self.builder.op("not", cond)
        outer = arm.parent
        while outer.parent is not None and outer.sibling in others:
            outer = outer.parent
        if outer.parent is None:
            return own
        return self.builder.op("and", self.path(outer, others, atoms), own)


def _may_be_taken(arm: _Arm, arms: Set[_Arm], is_taken: bool) -> bool:
    """Whether an arm may be taken if some of ``arms`` are, or if none of them is."""
    is_inside = arm in arms or not arms.isdisjoint(_ancestors(arm))
    if not is_taken:
        return not is_inside
    return is_inside or any(arm in _ancestors(a) for a in arms)


def _is_tree(s: If) -> bool:
    """Whether a condition has only equations and conditions inside."""
    return all(
        isinstance(inner, Equation) or (isinstance(inner, If) and _is_tree(inner))
        for block in (s.then, s.orelse)
        for inner in block.statements
    )


def _runs(nodes: Sequence[_Node]) -> Iterator[tuple[Set[_Arm], list[_Node]]]:
    """Yield runs of nodes that the same arms need, in an order that can run, with these arms.

    A run takes along less work that only some of its lanes need: one branch saves most of what two
    would, and the nodes of a run can be computed side by side.
    """
    alike: defaultdict[frozenset[_Arm], list[_Node]] = defaultdict(list)
    for node in nodes:
        alike[frozenset(node.arms)].append(node)
    # What outer branches need comes before what inner ones need.
    waiting = sorted(nodes, key=lambda n: min(a.depth for a in n.arms))
    done: set[_Node] = set()

    def take_ready(candidates: Iterable[_Node]) -> Iterator[_Node]:
        for node in candidates:
            if node not in done and _is_ready(node, done):
                done.add(node)
                yield node

    while waiting:
        arms = frozenset(next(n for n in waiting if _is_ready(n, done)).arms)
        run = list(take_ready(alike[arms]))
        alike[arms] = [n for n in alike[arms] if n not in done]
        if _is_skipped(arms, run):
            joining = _joining(arms, _cost(run), alike)
            run += take_ready(n for n in nodes if n.arms in joining)
        waiting = [n for n in waiting if n not in done]
        yield arms, run


def _is_skipped(arms: Set[_Arm], run: Sequence[_Node]) -> bool:
    """Whether a costly run gets a condition, since some lanes may not need it."""
    return all(arm.parent is not None for arm in arms) and _cost(run) >= BRANCH_COST


def _joining(
    arms: Set[_Arm], budget: int, alike: Mapping[frozenset[_Arm], Sequence[_Node]]
) -> set[frozenset[_Arm]]:
    """Return which nodes inside arms go with a run, by the arms that need them.

    Their cost is at most ``budget``. A costly op stays on its own, so that lanes that do not need
    it pass harmless arguments to the maths library.
    """
    inside, joining = _with_inner(arms), set()
    for others, nodes in alike.items():
        cost = _cost(nodes)
        if others <= inside and cost <= budget and all(n.cost < BRANCH_COST for n in nodes):
            joining.add(others)
            budget -= cost
    return joining


def _cost(nodes: Iterable[_Node]) -> int:
    return sum(n.cost for n in nodes)


def _with_inner(arms: Iterable[_Arm]) -> set[_Arm]:
    """Return arms and all arms inside them."""
    found: set[_Arm] = set()
    waiting = list(arms)
    while waiting:
        arm = waiting.pop()
        found.add(arm)
        waiting += arm.inner
    return found


def _is_ready(node: _Node, done: set[_Node]) -> bool:
    return all(a in done for a in node.args if isinstance(a, _Node))
