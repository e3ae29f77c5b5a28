"""An import-linter contract that says, folder by folder, which others it may import: everything else is forbidden."""

from __future__ import annotations

from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class FolderImports(Contract):
    """`allowed`: lines of the form `FOLDER -> FOLDER, FOLDER`.

    A module belongs to the longest FOLDER on the left that contains it, so a subfolder with a line of its own is apart
    from its parent. Imports inside a folder are free. Every module of the root packages needs a line.
    """

    allowed = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        rules = dict(_rule(line) for line in self.allowed)  # type: ignore[attr-defined]  # a field's value
        known = {name for name in graph.modules if not graph.is_module_squashed(name)}
        homes = {name: _home(name, rules) for name in known}
        found = [f"{name} belongs to no line" for name, home in homes.items() if home is None]
        used: dict[str, set[str]] = {folder: set() for folder in rules}
        for name, home in homes.items():
            for imported in graph.find_modules_directly_imported_by(name) & known:
                other = homes[imported]
                if home is None or other is None or other == home:
                    continue
                used[home].add(other)
                if other not in rules[home]:
                    found.append(f"{name} imports {imported}; {home} may import {', '.join(sorted(rules[home]))}")
        for folder, others in rules.items():
            found += [f"{folder} does not import {other}: take it off its line" for other in others - used[folder]]
        return ContractCheck(kept=not found, metadata={"found": sorted(found)})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["found"]:
            output.print_error(line, bold=False)


def _rule(line: Any) -> tuple[str, frozenset[str]]:
    folder, _, others = str(line).partition("->")
    return folder.strip(), frozenset(name.strip() for name in others.split(",") if name.strip())


def _home(name: str, rules: dict[str, frozenset[str]]) -> str | None:
    holders = [folder for folder in rules if name == folder or name.startswith(f"{folder}.")]
    return max(holders, key=len, default=None)
