"""A command over SSH: streams joined to the channel, exit status sent, a hang-up when the client disconnects."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import termios
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Protocol

import asyncssh

from localcloud.vm.processes import SHELL

_CHUNK_BYTES = 64 * 1024
Process = asyncssh.SSHServerProcess[bytes]


class _Sink(Protocol):
    def write(self, data: bytes) -> None: ...
    async def drain(self) -> None: ...
    def close(self) -> None: ...


async def run_command(process: Process, env: dict[str, str], home: Path) -> None:
    """Run the client's command, or a shell that reads commands, without a terminal."""
    argv = ["/bin/sh", "-c", process.command] if process.command else [SHELL]
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        *argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env, cwd=home, start_new_session=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    output = [_pump_out(child.stdout, process.stdout), _pump_out(child.stderr, process.stderr)]
    await _attend(process, child, _pump_in(process, child.stdin, child.pid, None), output)


async def run_on_terminal(process: Process, env: dict[str, str], home: Path) -> None:
    """The same on a pseudo-terminal: `ssh -t`, and interactive shells."""
    argv = ["/bin/sh", "-c", process.command] if process.command else [SHELL, "-i"]
    master, slave = pty.openpty()
    _resize(master, process.term_size)

    def take_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    try:
        child = await asyncio.create_subprocess_exec(
            *argv, stdin=slave, stdout=slave, stderr=slave, env={**env, "TERM": process.term_type or "dumb"},
            cwd=home, start_new_session=True, preexec_fn=take_terminal,
        )  # fmt: skip
    finally:
        os.close(slave)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    reading, _ = await loop.connect_read_pipe(lambda: _OfTerminal(reader), os.fdopen(os.dup(master), "rb", 0))
    writing, flow = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(os.dup(master), "wb", 0))
    writer = asyncio.StreamWriter(writing, flow, None, loop)
    try:
        await _attend(process, child, _pump_in(process, writer, child.pid, master), [_pump_out(reader, process.stdout)])
    finally:
        reading.close()
        writing.abort()
        os.close(master)


class _OfTerminal(asyncio.StreamReaderProtocol):
    """Linux ends a terminal's output with EIO: as an error it would take the place of what is read and not yet sent."""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(None)


async def _attend(
    process: Process, child: asyncio.subprocess.Process, feeding: Coroutine[Any, Any, None],
    output: Sequence[Coroutine[Any, Any, None]],
) -> None:  # fmt: skip
    """Until the command has ended and its output is sent, or the client disconnects: then its group gets SIGHUP."""
    feeder = asyncio.create_task(feeding)
    pumps = [asyncio.create_task(pump) for pump in output]
    gone = asyncio.create_task(process.channel.wait_closed())
    done = asyncio.create_task(_ended(child, pumps))
    try:
        await asyncio.wait([done, gone], return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            _signal_group(child.pid, signal.SIGHUP)
            await child.wait()  # A command that ignores the hang-up keeps running, as under sshd.
            return
        code = child.returncode or 0
        if code < 0:
            process.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
        else:
            process.exit(code)
    finally:
        for task in (feeder, gone, done, *pumps):
            task.cancel()
        await asyncio.gather(feeder, gone, done, *pumps, return_exceptions=True)


async def _ended(child: asyncio.subprocess.Process, pumps: Sequence[asyncio.Task[None]]) -> None:
    """The command has ended and its output is closed: like sshd, also by what it left in the background."""
    await child.wait()
    await asyncio.gather(*pumps)


async def _pump_in(process: Process, sink: _Sink, group: int, terminal: int | None) -> None:
    """Client to command. Signals, breaks and new window sizes arrive in the same stream, as exceptions."""
    with contextlib.suppress(ConnectionError, asyncssh.Error, OSError):
        while True:
            try:
                data = await process.stdin.read(_CHUNK_BYTES)
            except asyncssh.SignalReceived as received:
                _signal_group(group, getattr(signal, f"SIG{received.signal}", signal.SIGTERM))
                continue
            except asyncssh.BreakReceived:
                _signal_group(group, signal.SIGINT)
                continue
            except asyncssh.TerminalSizeChanged as size:
                if terminal is not None:
                    _resize(terminal, size.term_size)
                continue
            if not data:
                break
            sink.write(data)
            await sink.drain()
    if terminal is None:
        sink.close()


async def _pump_out(source: asyncio.StreamReader, sink: asyncssh.SSHWriter[bytes]) -> None:
    """Command to client. EIO ends a terminal, ConnectionError a client that has disconnected."""
    with contextlib.suppress(OSError, asyncssh.Error):
        while data := await source.read(_CHUNK_BYTES):
            sink.write(data)
            await sink.drain()


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def _resize(terminal: int, size: tuple[int, int, int, int]) -> None:
    columns, rows, width, height = size
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, width, height))
