"""Evaluation of the PromQL that the alerts use, over the syntax tree of a real parser. Other
constructs are refused. `tests/chart/test_alerts.py` compares the results with promtool's, if
promtool is installed."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import promql_parser as promql

from tests.support.promql.functions import OVER_RANGE, quantile_of
from tests.support.promql.series import NAME, Labels, Series

T = TypeVar("T")
Vector = dict[Labels, float]
Value = Vector | float
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda left, right: left / right if right else math.nan,
}
AGGREGATIONS: dict[str, Callable[[list[float]], float]] = {
    "sum": sum,
    "max": max,
    "min": min,
    "count": len,
}


class Unknown(NotImplementedError):
    """PromQL construct that no alert has used so far."""


class Evaluation:
    def __init__(self, series: Series, at_s: float) -> None:
        self._series, self._at_s = series, at_s

    def vector(self, expression: str) -> Vector:
        value = self._value(promql.parse(expression))
        assert isinstance(value, dict), expression
        return value

    def _value(self, node: Any) -> Value:
        match node:
            case promql.NumberLiteral():
                return node.val
            case promql.ParenExpr():
                return self._value(node.expr)
            case promql.VectorSelector():
                return {labels: value for labels, _, value in self._selected(node)}
            case promql.AggregateExpr():
                return self._aggregated(node)
            case promql.Call():
                return self._called(node)
            case promql.BinaryExpr():
                return self._combined(node)
        raise Unknown(type(node).__name__)

    def _selected(self, node: Any) -> Iterator[tuple[Labels, float, float]]:
        at_s = self._at_s - _seconds(node.offset)
        for labels, seen_s, value in self._series.at(at_s):
            if _is_meant(node, labels):
                yield labels, seen_s, value

    def _aggregated(self, node: Any) -> Vector:
        by = node.modifier
        if node.param is not None or (by and by.type != promql.AggModifierType.By):
            raise Unknown(node.prettify())
        groups: dict[Labels, list[float]] = {}
        for labels, value in self._vector(node.expr).items():
            groups.setdefault(_only(labels, by.labels if by else []), []).append(value)
        combine = _known(AGGREGATIONS, str(node.op))
        return {labels: float(combine(values)) for labels, values in groups.items()}

    def _called(self, node: Any) -> Value:
        name, given = node.func.name, node.args
        if name in OVER_RANGE:
            return self._over_range(name, given[0])
        if name == "time":
            return self._at_s
        if name == "timestamp":
            return {_nameless(labels): seen_s for labels, seen_s, _ in self._selected(given[0])}
        if name == "abs":
            return {_nameless(one): abs(v) for one, v in self._vector(given[0]).items()}
        if name == "histogram_quantile":
            return _quantiles(given[0].val, self._vector(given[1]))
        raise Unknown(name)

    def _over_range(self, name: str, node: Any) -> Vector:
        selector, range_s = node.vector_selector, node.range.total_seconds()
        at_s = self._at_s - _seconds(selector.offset)
        keeps_name = name == "last_over_time"
        found: Vector = {}
        for labels, points in self._series.within(at_s, range_s):
            if _is_meant(selector, labels):
                value = OVER_RANGE[name](points, at_s - range_s, at_s)
                if value is not None:
                    found[labels if keeps_name else _nameless(labels)] = value
        return found

    def _combined(self, node: Any) -> Value:
        left, right, name = self._value(node.lhs), self._value(node.rhs), str(node.op)
        if name in ("and", "or", "unless"):
            assert isinstance(left, dict)
            assert isinstance(right, dict)
            return _joined(name, left, right, _matching(node))
        return _computed(name, left, right, _matching(node))

    def _vector(self, node: Any) -> Vector:
        value = self._value(node)
        assert isinstance(value, dict), node.prettify()
        return value


def _joined(name: str, left: Vector, right: Vector, key: Callable[[Labels], Labels]) -> Vector:
    there, here = {key(labels) for labels in right}, {key(labels) for labels in left}
    if name == "or":
        return left | {one: value for one, value in right.items() if key(one) not in here}
    return {one: value for one, value in left.items() if (key(one) in there) == (name == "and")}


def _computed(name: str, left: Value, right: Value, key: Callable[[Labels], Labels]) -> Value:
    if not isinstance(left, dict) and not isinstance(right, dict):
        return _known(ARITHMETIC, name)(left, right)
    if not isinstance(right, dict):
        assert isinstance(left, dict)
        pairs = [(labels, value, right) for labels, value in left.items()]
    elif not isinstance(left, dict):
        pairs = [(labels, left, value) for labels, value in right.items()]
    else:
        of_key = {key(labels): value for labels, value in right.items()}
        assert len(of_key) == len(right), "several series on the right side for one on the left"
        pairs = [(one, v, of_key[key(one)]) for one, v in left.items() if key(one) in of_key]
    if name in COMPARISONS:
        holds = COMPARISONS[name]
        return {labels: a if isinstance(left, dict) else b for labels, a, b in pairs if holds(a, b)}
    return {_nameless(labels): _known(ARITHMETIC, name)(a, b) for labels, a, b in pairs}


def _matching(node: Any) -> Callable[[Labels], Labels]:
    modifier = node.modifier
    if modifier is None or modifier.matching is None:
        return _nameless
    if modifier.group_labels or modifier.matching.type != promql.LabelModifierType.Include:
        raise Unknown(node.prettify())
    names = modifier.matching.labels
    return lambda labels: _only(labels, names)


def _quantiles(quantile: float, vector: Vector) -> Vector:
    histograms: dict[Labels, dict[float, float]] = {}
    for labels, value in vector.items():
        bound = float(dict(labels)["le"].replace("Inf", "inf"))
        rest = frozenset(pair for pair in _nameless(labels) if pair[0] != "le")
        histograms.setdefault(rest, {})[bound] = value
    return {labels: quantile_of(quantile, buckets) for labels, buckets in histograms.items()}


def _is_meant(node: Any, labels: Labels) -> bool:
    named = dict(labels)
    if named.get(NAME) != node.name:
        return False
    return all(_fits(one, named.get(one.name, "")) for one in node.matchers.matchers)


def _fits(matcher: Any, value: str) -> bool:
    is_pattern = matcher.op in (promql.MatchOp.Re, promql.MatchOp.NotRe)
    fits = bool(re.fullmatch(matcher.value, value)) if is_pattern else matcher.value == value
    return fits == (matcher.op in (promql.MatchOp.Equal, promql.MatchOp.Re))


def _known(table: dict[str, T], name: str) -> T:
    if name not in table:
        raise Unknown(name)
    return table[name]


def _only(labels: Labels, names: list[str]) -> Labels:
    return frozenset(pair for pair in labels if pair[0] in names)


def _nameless(labels: Labels) -> Labels:
    return frozenset(pair for pair in labels if pair[0] != NAME)


def _seconds(offset: Any) -> float:
    return offset.total_seconds() if offset is not None else 0.0
