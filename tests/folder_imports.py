"""An import-linter contract that lists, folder by folder, what each may import: everything else is forbidden."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class FolderImports(Contract):
    """`allowed`: lines `FOLDER -> FOLDER, ..`; several lines of one folder add up.

    A module belongs to the longest FOLDER on the left that contains it, so a subfolder with lines of its own is apart
    from its parent. Imports inside a folder are free. Every module needs a line, and a line that nothing uses is wrong.
    """

    allowed = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        rules = _parsed(self.allowed)  # type: ignore[arg-type]  # the field's value, by import-linter's metaclass
        problems = sorted({*_unlisted(graph, rules), *_unused(graph, rules)})
        return ContractCheck(kept=not problems, metadata={"problems": problems})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for problem in check.metadata["problems"]:
            output.print_error(problem, bold=False)


Rules = dict[str, set[str]]


def _parsed(lines: Iterable[str]) -> Rules:
    rules: Rules = defaultdict(set)
    for line in lines:
        folder, _, others = line.partition("->")
        rules[folder.strip()].update(name.strip() for name in others.split(",") if name.strip())
    return dict(rules)


def _unlisted(graph: ImportGraph, rules: Rules) -> Iterator[str]:
    for module, folder, imported, other in _imports(graph, rules):
        if other not in rules.get(folder, ()):
            yield f"{module} imports {imported}: {folder} may not import {other}"


def _unused(graph: ImportGraph, rules: Rules) -> Iterator[str]:
    used = {(folder, other) for _, folder, _, other in _imports(graph, rules)}
    for folder, others in rules.items():
        for other in others:
            if (folder, other) not in used:
                yield f"{folder} does not import {other}: take it off the list"


def _imports(graph: ImportGraph, rules: Rules) -> Iterator[tuple[str, str, str, str]]:
    """Module, its folder, what it imports, and that one's folder: where the two folders differ."""
    ours = {name for name in graph.modules if not graph.is_module_squashed(name)}
    folders = {
        name: max((one for one in rules if f"{name}.".startswith(f"{one}.")), key=len, default="") for name in ours
    }
    for module in ours:
        for imported in graph.find_modules_directly_imported_by(module) & ours:
            if folders[module] != folders[imported]:
                yield module, folders[module], imported, folders[imported]
