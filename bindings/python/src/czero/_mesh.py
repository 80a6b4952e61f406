# SPDX-License-Identifier: MIT
"""A backend of groups for processes that can exchange a few bytes some other way: sockets between
all of them, and memory that those of one machine share, through which nearly everything goes once
they have met there (docs/add-a-backend.md, which has the words).

All functions run inside calls of the library, on whichever threads make them (`inline_only`); a
lock for all groups of a process that have the same sockets keeps them apart.
"""
import collections
import ctypes
import hashlib
import mmap
import os
import secrets
import signal
import socket
import struct
import threading

from . import _declarations as c
from . import errors
from ._library import call, here, lib, status_of

PART_BYTES = 4 << 20  # of the shared memory, for each rank; less in large groups
ALL_BYTES = 128 << 20
HELLO_SECONDS = 5  # until a rank that has called says who it is

_FRAME = struct.Struct("<QQQQ")  # what it is, of which group, its tag, bytes that follow
_DATA, _BREAK, _ASK, _ANNOUNCE, _LEAVE = range(5)
_PENDING, _DONE = 0, 1


class _Link:
    """The socket to another process, what is to be sent, and what has come in part."""

    def __init__(self, connected, peer):
        connected.setblocking(False)
        if connected.family != socket.AF_UNIX:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket, self.peer = connected, peer
        self.out = collections.deque()  # [bytes to send, transfer or None]
        self.header, self.have = bytearray(_FRAME.size), 0
        self.body = self.body_have = self.target = None
        self.why = None  # once it is gone

    def send(self, pieces, transfer=None):
        if self.why is not None:
            return
        for piece in pieces[:-1]:
            self.out.append([memoryview(piece), None])
        self.out.append([memoryview(pieces[-1]).cast("B"), transfer])
        self.flush()

    def flush(self):
        while self.out:
            entry = self.out[0]
            try:
                sent = self.socket.send(entry[0])
            except BlockingIOError:
                return
            except OSError as error:
                self.gone(f": {error.strerror}")
                return
            if sent < len(entry[0]):
                entry[0] = entry[0][sent:]
                continue
            self.out.popleft()
            if entry[1] is not None:
                entry[1].state = _DONE

    def gone(self, why):
        if self.why is None:
            self.why = why
            self.out.clear()


class _Transfer:
    """A transfer of the library's: where its bytes are, and whether it has ended."""

    __slots__ = ("memory", "peer", "key", "state", "error")

    def __init__(self, memory, peer, key):
        self.memory, self.peer, self.key = memory, peer, key
        self.state, self.error = _PENDING, None


class _Mesh:
    """One process's sockets to all others of a group, and the groups made of it."""

    def __init__(self, rank, links):
        self.rank, self.links = rank, links
        self.endpoints = {}  # by the group's number
        self.lock = threading.RLock()
        self.early = {}      # of groups that are not there yet here: [(peer, kind, tag, bytes)]

    def poll(self):
        if not self.lock.acquire(blocking=False):
            return  # another thread does it
        try:
            for link in list(self.links.values()):
                if link.out:
                    link.flush()
                if link.why is None:
                    self._receive(link)
        finally:
            self.lock.release()

    def _receive(self, link):
        while True:
            try:
                if link.have < _FRAME.size:
                    got = link.socket.recv_into(memoryview(link.header)[link.have:])
                    link.have += got
                    if link.have == _FRAME.size:
                        self._begin(link)
                elif link.body_have < len(link.body):
                    got = link.socket.recv_into(link.body[link.body_have:])
                    link.body_have += got
                else:
                    self._end(link)
                    continue
            except BlockingIOError:
                return
            except OSError as error:
                link.gone(f": {error.strerror}")
                return
            if got == 0:
                link.gone(": its process has ended")
                return

    def _begin(self, link):
        kind, number, tag, length = _FRAME.unpack(link.header)
        endpoint = self.endpoints.get(number)
        link.target = None
        if kind == _DATA and endpoint is not None:
            waiting = endpoint.receives.get((link.peer, tag))
            if waiting:
                link.target = waiting.popleft()
                if len(link.target.memory) != length:
                    link.target.error = (c.CZ_ERR_INTERNAL, f"{length} bytes came for "
                                         f"{len(link.target.memory)}")
                    link.target = None
        link.body = link.target.memory if link.target else memoryview(bytearray(length))
        link.body_have = 0

    def _end(self, link):
        kind, number, tag, _ = _FRAME.unpack(link.header)
        body, target, link.have, link.body, link.target = link.body, link.target, 0, None, None
        if target is not None:
            target.state = _DONE
            return
        endpoint = self.endpoints.get(number)
        if endpoint is None:
            self.early.setdefault(number, []).append((link.peer, kind, tag, body))
        else:
            endpoint.take(link.peer, kind, tag, body)


class _Endpoint:
    """One rank's side of one group; `members` are ranks of the mesh."""

    def __init__(self, mesh, number, members, rank, window):
        self.mesh, self.number, self.members, self.rank = mesh, number, members, rank
        self.window, self.parts = window, []
        self.receives = {}  # (peer, tag): transfers that wait for a message
        self.arrived = {}   # (peer, tag): messages that wait for a transfer
        self.transfers = {}
        self.begun, self.heard = 0, [0] * len(members)
        self.left = {}      # peer: why
        self.broken = None  # (sequence, status, sentence)
        if window is not None:
            size = len(window) // len(members)
            base = ctypes.addressof(ctypes.c_char.from_buffer(window))
            self.parts, self.part_bytes = [base + r * size for r in range(len(members))], size
        mesh.endpoints[number] = self
        for given in mesh.early.pop(number, ()):
            self.take(*given)

    def others(self):
        return [peer for peer in self.members if peer != self.mesh.rank]

    def take(self, peer, kind, tag, body):
        if kind == _DATA:
            self._message(peer, tag, body)
        elif kind == _BREAK:
            self._break(tag, *_unpack_break(body))
        elif kind == _ASK:
            self.send(peer, _ANNOUNCE, self.begun)
        elif kind == _ANNOUNCE:
            self.heard[self.members.index(peer)] = tag
        elif kind == _LEAVE:
            self.left[peer] = bytes(body).decode(errors="replace")

    def _message(self, peer, tag, body):
        waiting = self.receives.get((peer, tag))
        if not waiting:
            self.arrived.setdefault((peer, tag), collections.deque()).append(body)
            return
        self._fill(waiting.popleft(), body)

    @staticmethod
    def _fill(transfer, body):
        if len(transfer.memory) != len(body):
            transfer.error = (c.CZ_ERR_INTERNAL, f"{len(body)} bytes came for "
                              f"{len(transfer.memory)}")
            return
        transfer.memory[:] = body
        transfer.state = _DONE

    def send(self, peer, kind, tag, body=b"", transfer=None):
        header = _FRAME.pack(kind, self.number, tag, len(body))
        pieces = [header, body] if len(body) else [header]
        self.mesh.links[peer].send(pieces, transfer)

    def _break(self, sequence, status, sentence):
        if self.broken is None or sequence < self.broken[0]:
            self.broken = (sequence, status, sentence)

    def gone(self, peer):
        """Why nothing more comes from a peer; None: something may."""
        return self.left.get(peer, self.mesh.links[peer].why)


def _unpack_break(body):
    return int.from_bytes(body[:4], "little"), bytes(body[4:])


# ---- the table of functions ----

_endpoints: dict = {}  # what the library has as a pointer: a number
_next = [1]
_numbers = threading.Lock()


def _register(endpoint):
    with _numbers:
        number, _next[0] = _next[0], _next[0] + 1
    _endpoints[number] = endpoint
    return number


def _forget():
    """In a child of fork() groups are dead: it must not hold sockets, whose other ends would not
    hear of the parent's end, nor locks that nobody will release."""
    for mesh in {endpoint.mesh for endpoint in _endpoints.values()}:
        mesh.lock = threading.RLock()
        for link in mesh.links.values():
            link.gone(": this is a child of its process")
            link.socket.close()


os.register_at_fork(after_in_child=_forget)


def _entry(function, failed=None):
    """A function of the table, which raises nothing: what comes in it, such as Ctrl-C by somebody
    else's handler, comes out of the library's call on this thread. `failed` makes a status of it.
    """
    def guarded(*arguments):
        before = here.depth
        try:
            here.depth = before + 1
            if failed is not None and here.kept is not None:
                return failed(here.kept)  # so that a call that waits is back soon
            return function(*arguments)
        except BaseException as exception:
            if failed is None or not isinstance(exception, Exception):
                here.kept = here.kept or exception
            return failed(exception) if failed is not None else None
        finally:
            here.depth = before
    return guarded


_ENTRY = _entry(None).__code__


def on_interrupt(number, frame):
    """Ctrl-C as Python has it, but never inside the functions of the table, which it would leave
    half done: there it waits until the library's call is back."""
    inside = frame
    while inside is not None and inside.f_code is not _ENTRY:
        inside = inside.f_back
    if inside is None:
        signal.default_int_handler(number, frame)
    here.kept = here.kept or KeyboardInterrupt()


def _status(function):
    """A function of the table that returns a status: an exception becomes one."""
    def locked(number, *arguments):
        endpoint = _endpoints[number]
        with endpoint.mesh.lock:
            return function(endpoint, *arguments) or c.CZ_OK
    return _entry(locked, status_of)


def _locked(function):
    """Another function of the table."""
    def locked(number, *arguments):
        endpoint = _endpoints[number]
        with endpoint.mesh.lock:
            return function(endpoint, *arguments)
    return _entry(locked)


@_entry
def _start(_number, _notify, _context):
    pass  # it is polled


def _seen(endpoint, transfer):
    given = transfer.contents
    memory = memoryview((ctypes.c_char * given.bytes).from_address(given.data)).cast("B")
    peer = endpoint.members[given.peer]
    one = _Transfer(memory, peer, (peer, given.tag))
    endpoint.transfers[ctypes.addressof(given)] = one
    return one


@_status
def _post_send(endpoint, transfer):
    one = _seen(endpoint, transfer)
    endpoint.send(one.peer, _DATA, one.key[1], one.memory, one)


@_status
def _post_receive(endpoint, transfer):
    one = _seen(endpoint, transfer)
    arrived = endpoint.arrived.get(one.key)
    if arrived:
        body = arrived.popleft()
        if not arrived:
            del endpoint.arrived[one.key]
        endpoint._fill(one, body)
    else:
        endpoint.receives.setdefault(one.key, collections.deque()).append(one)


@_status
def _test(endpoint, transfer, done):
    address = ctypes.addressof(transfer.contents)
    one = endpoint.transfers[address]
    done[0] = one.state == _DONE
    if one.state == _DONE:
        del endpoint.transfers[address]
        if not endpoint.receives.get(one.key, True):
            del endpoint.receives[one.key]
    elif one.error is not None:
        return lib.cz_fail_text(one.error[0], one.error[1].encode())
    elif (why := endpoint.gone(one.peer)) is not None:
        rank = transfer.contents.peer
        return lib.cz_fail_text(c.CZ_ERR_PEER, f"rank {rank} left{why}".encode())


@_locked
def _withdraw(endpoint, transfer):
    one = endpoint.transfers.pop(ctypes.addressof(transfer.contents), None)
    if one is None or one.state == _DONE:
        return True
    waiting = endpoint.receives.get(one.key)
    if waiting and one in waiting:
        waiting.remove(one)
    link = endpoint.mesh.links[one.peer]
    if link.target is one:  # half of it is here: the rest goes elsewhere
        link.body, link.target = memoryview(bytearray(one.memory)), None
    for entry in link.out:
        if entry[1] is one:
            entry[0], entry[1] = memoryview(bytes(entry[0])), None
    return True


@_locked
def _break_group(endpoint, sequence, status, sentence):
    endpoint._break(sequence, status, sentence or b"")
    body = status.to_bytes(4, "little") + (sentence or b"")
    for peer in endpoint.others():
        endpoint.send(peer, _BREAK, sequence, body)


@_entry
def _broken(number, sequence, sentence, size):
    broken = _endpoints[number].broken
    sequence[0] = broken[0] if broken else 2**64 - 1
    if sentence and size:
        text = (broken[2] if broken else b"")[:size - 1] + b"\0"
        ctypes.memmove(sentence, text, len(text))
    return broken[1] if broken else c.CZ_OK


@_entry
def _announce(number, begun):
    _endpoints[number].begun = begun


@_locked
def _announced(endpoint, rank):
    if rank == endpoint.rank:
        return endpoint.begun
    endpoint.send(endpoint.members[rank], _ASK, 0)
    endpoint.mesh.poll()
    return endpoint.heard[rank]


@_entry
def _leave(number, why):
    endpoint = _endpoints.pop(number)
    with endpoint.mesh.lock:
        _say_goodbye(endpoint, b": " + why if why else b"")


def _say_goodbye(endpoint, body):
    for peer in endpoint.others():
        endpoint.send(peer, _LEAVE, 0, body)
    mesh = endpoint.mesh
    del mesh.endpoints[endpoint.number]
    if not mesh.endpoints:
        for link in mesh.links.values():
            if link.why is None:  # what was sent is to arrive, and this waits only for its kernel
                link.socket.settimeout(1.0)
                try:
                    for piece, _ in link.out:
                        link.socket.sendall(piece)
                    link.socket.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
            link.socket.close()
        mesh.links.clear()


@_entry
def _poll(number):
    _endpoints[number].mesh.poll()


@_status
def _split(endpoint, group, ranks, count, rank, out):
    if rank < 0:
        return c.CZ_OK
    members = [endpoint.members[ranks[place]] for place in range(count)]
    # Ranks that are not members count the group too, so its number is the same on all.
    seed = struct.pack(f"<QQ{count}Q", endpoint.number, group, *members)
    number = int.from_bytes(hashlib.blake2b(seed, digest_size=8).digest(), "little")
    out[0] = _register(_Endpoint(endpoint.mesh, number, members, rank, None))


@_entry
def _window(number, rank, size):
    endpoint = _endpoints[number]
    if not endpoint.parts:
        return None
    size[0] = endpoint.part_bytes
    return endpoint.parts[rank]


@_status
def _present(endpoint, rank):
    peer = endpoint.members[rank]
    if peer != endpoint.mesh.rank and (why := endpoint.gone(peer)) is not None:
        return lib.cz_fail_text(c.CZ_ERR_PEER, f"rank {rank} left{why}".encode())


def _table():
    table = c.cz_backend(abi=c.CZ_BACKEND_ABI, name=b"processes", inline_only=True,
                         poll_seconds=0.0)
    table.size = ctypes.sizeof(table)
    for name, function in (
            ("start", _start), ("post_send", _post_send), ("post_receive", _post_receive),
            ("test", _test), ("withdraw", _withdraw), ("break_group", _break_group),
            ("broken", _broken), ("announce", _announce), ("announced", _announced),
            ("leave", _leave), ("poll", _poll), ("split", _split), ("window", _window),
            ("present", _present)):
        kind = dict(c.cz_backend._fields_)[name]
        setattr(table, name, kind(function))
    return table


_TABLE = _table()


# ---- how processes find each other ----

def connect(rank, size, exchange, timeout=0.0):
    """A handle on a group of `size` processes. ``exchange(data)`` gives bytes to all ranks and
    returns the list of what they gave; it is called four times."""
    if (threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler):
        signal.signal(signal.SIGINT, on_interrupt)
    machine = _machine()
    alike = all(one == machine.encode() for one in exchange(machine.encode()))
    listener, mine = _listen(size, machine, alike)
    places = [_unpack_place(one) for one in exchange(mine)]
    links, accepted = {}, {}
    try:
        for peer in range(rank):  # the higher rank calls the lower one
            links[peer] = _Link(_call(places[peer], places[rank], rank), peer)
        while len(accepted) < size - 1 - rank:
            other, _ = listener.accept()
            try:
                other.settimeout(HELLO_SECONDS)
                peer, secret = struct.unpack("<Q16s", _read(other, 24))
            except OSError:  # a rank says at once who it is
                secret = b""
            if secret == places[rank]["secret"] and rank < peer < size:
                accepted[peer] = other
            else:
                other.close()  # somebody who has no business here
    finally:
        listener.close()
    links.update({peer: _Link(other, peer) for peer, other in accepted.items()})
    window = _share(rank, size, places, exchange)
    endpoint = _Endpoint(_Mesh(rank, links), 0, list(range(size)), rank, window)
    handle = ctypes.c_void_p()
    call(lib.cz_group_create_custom(ctypes.byref(handle), rank, size, _TABLE, _register(endpoint),
                                    c.cz_group_options(timeout_seconds=timeout)))
    return handle


def _machine():
    """What only processes that can share memory have in common: the kernel's run, and the
    namespace in which /proc/PID is the same process."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"


def _listen(size, machine, alike):
    """A socket that the others can call, from elsewhere only if some are there; and how: packed."""
    secret = secrets.token_bytes(16)
    name = socket.gethostname()
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1" if alike else "", 0))
    listener.listen(size)
    listener.settimeout(60)
    fields = [str(listener.getsockname()[1]), machine, name, _address(name), secret.hex()]
    return listener, "\n".join(fields).encode()


def _unpack_place(packed):
    port, machine, name, address, secret = packed.decode().split("\n")
    return {"port": int(port), "machine": machine, "name": name, "address": address,
            "secret": bytes.fromhex(secret)}


def _address(name):
    """This machine's address as others see it, as far as it can be told from here."""
    try:
        found = socket.gethostbyname(name)
    except OSError:
        found = "127.0.0.1"
    if not found.startswith("127."):
        return found
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:  # nothing is sent: the kernel says which way it would go
        probe.connect(("192.0.2.1", 9))
        return probe.getsockname()[0]
    except OSError:
        return found
    finally:
        probe.close()


def _call(place, here, rank):
    address = "127.0.0.1" if place["machine"] == here["machine"] else place["address"]
    try:
        other = socket.create_connection((address, place["port"]), timeout=60)
    except OSError as error:
        raise errors.FileError(f"rank {rank} cannot reach {place['name']} at {address}:"
                               f"{place['port']}: {error}") from None
    other.sendall(struct.pack("<Q16s", rank, place["secret"]))
    return other


def _read(connected, count):
    data = b""
    while len(data) < count:
        piece = connected.recv(count - len(data))
        if not piece:
            break
        data += piece
    return data.ljust(count, b"\0")


def _share(rank, size, places, exchange):
    """Memory of all ranks, or None on all of them: where they are on several machines, or some rank
    cannot have it. It is a file without a name."""
    alike = len({place["machine"] for place in places}) == 1 and size > 1
    part = min(PART_BYTES, ALL_BYTES // size // mmap.PAGESIZE * mmap.PAGESIZE)
    file, where, window = -1, b"", None
    try:  # all ranks make both exchanges, whatever comes between
        if alike and rank == 0 and hasattr(os, "memfd_create"):
            try:
                file = os.memfd_create("czero", os.MFD_CLOEXEC)
                os.ftruncate(file, part * size)
                where = f"/proc/{os.getpid()}/fd/{file}".encode()
            except OSError:
                pass
        where = exchange(where)[0]
        if alike and where:
            try:
                if rank != 0:
                    file = os.open(where, os.O_RDWR | os.O_CLOEXEC)
                if os.fstat(file).st_size == part * size:
                    window = mmap.mmap(file, part * size)
            except OSError:
                pass
        ready = exchange(b"1" if window is not None else b"")
    finally:
        if file >= 0:
            os.close(file)
    return window if all(ready) else None
