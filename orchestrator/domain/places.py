"""Where an attempt runs: a zone of the cloud, or a machine of your own."""

from __future__ import annotations

from orchestrator.domain.host_address import is_host
from orchestrator.domain.names import bucket_name
from orchestrator.domain.prices import region_of


class Place(str):
    """A place; as text it is what the ledger, JSON and command lines hold, and an `@` tells the two kinds apart."""

    __slots__ = ()
    is_rented: bool
    ending: str
    """What happens there to a VM at its deadline."""

    @classmethod
    def from_text(cls, text: str) -> Place:
        return OwnMachine(text) if is_host(text) else Zone(text)

    @property
    def region(self) -> str:
        """Where data is local to it."""
        raise NotImplementedError

    def bucket(self, project: str) -> str:
        """Where data sets and results of attempts here are stored."""
        raise NotImplementedError

    def work_dir(self, vm: str) -> str:
        """The folder of an attempt's files, relative to the login's home."""
        raise NotImplementedError


class Zone(Place):
    """A zone, like us-central1-a. A VM there is rented, and has one attempt."""

    __slots__ = ()
    is_rented = True
    ending = "deleted by its kill switches"

    @property
    def region(self) -> str:
        return region_of(self)

    def bucket(self, project: str) -> str:
        return bucket_name(project, self.region)

    def work_dir(self, vm: str) -> str:
        return ".orchestrate"


class OwnMachine(Place):
    """`USER@ADDRESS[:PORT]`, which is not rented. It has its own store, and many attempts one after the other."""

    __slots__ = ()
    is_rented = False
    ending = "stopped there"

    @property
    def region(self) -> str:
        return self

    def bucket(self, project: str) -> str:
        return self

    def work_dir(self, vm: str) -> str:
        return f".orchestrate/{vm}"
