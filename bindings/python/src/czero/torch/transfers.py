# SPDX-License-Identifier: MIT
"""Ways between a device's memory and the host's, for :class:`HostOptimizer`: the one place that
knows of pinned memory and of streams."""
import torch


class Transfers:
    """Copies that are done when their call is back: any device."""

    #: May :meth:`to_device` be called on any thread, while the device computes?
    early = False

    def buffer(self, like):
        """Memory of the host for a tensor."""
        return torch.empty(like.shape, dtype=like.dtype)

    def to_host(self, home, tensor):
        """Copy; None, or an event whose ``synchronize()`` comes back when it is done."""
        home.copy_(tensor)

    def to_device(self, tensor, home):
        """And back."""
        tensor.copy_(home)

    def finish(self):
        """What the device does from now on sees what was copied to it."""


class CudaTransfers(Transfers):
    """Copies beside the device's work: a stream each way, and pinned memory."""

    early = True

    def __init__(self, device):
        self.device = device
        self._down, self._up = torch.cuda.Stream(device), torch.cuda.Stream(device)

    def buffer(self, like):
        return torch.empty(like.shape, dtype=like.dtype, pin_memory=True)

    def to_host(self, home, tensor):
        self._down.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._down):
            home.copy_(tensor, non_blocking=True)
            tensor.record_stream(self._down)
            return self._down.record_event()

    def to_device(self, tensor, home):
        # The gradient was there, so nothing that was to read the value is still to come.
        with torch.cuda.stream(self._up):
            tensor.copy_(home, non_blocking=True)

    def finish(self):
        torch.cuda.current_stream(self.device).wait_stream(self._up)


def between(device):
    """The best way there is to a device; None: it is the host."""
    if device.type == "cpu":
        return None
    return CudaTransfers(device) if device.type == "cuda" else Transfers()
