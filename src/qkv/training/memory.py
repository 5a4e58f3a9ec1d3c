"""What lets a larger model fit: blocks computed again for the backward pass, and weights cut among processes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from qkv.errors import UserError
from qkv.nn.blocks import DecoderBlock, EncoderBlock
from qkv.training.processes import Processes


@dataclass(frozen=True)
class MemoryConfig:
    """What is paid for with time when memory is short. None of it changes what is computed.

    gradient_checkpointing  keep only what enters each block and compute its inside again for the backward pass
                            (Chen et al. 2016): about a third more time
    fsdp                    cut weights, gradients and optimiser among the processes (Zhao et al. 2023); false: each
                            process holds all of them
    """

    gradient_checkpointing: bool = False
    fsdp: bool = False


def blocks(model: nn.Module) -> Iterator[nn.Module]:
    """The repeated parts of a model, each large and used one after another."""
    return (module for module in model.modules() if isinstance(module, EncoderBlock | DecoderBlock))


def recompute(model: nn.Module) -> None:
    """Makes every block keep its inputs only. Raises UserError when the model has no blocks."""
    found = list(blocks(model))
    if not found:
        raise UserError("memory.gradient_checkpointing: this model has no blocks that could be computed again")
    for block in found:
        block.forward = partial(_again, block.forward)


def _again(forward: Any, *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, use_reentrant=False, **kwargs)


def shard(model: nn.Module, together: Processes) -> None:
    """Cuts the weights of `model` among the processes, block by block. Raises UserError when there is only one."""
    if together.count == 1:
        raise UserError("memory.fsdp cuts a model among processes, and here is one: torchrun --nproc-per-node N -m qkv")
    cut(model, together.device, together.count)


def cut(model: nn.Module, device: torch.device, count: int) -> None:
    """Cuts the weights of `model` among all `count` processes, which are connected."""
    # Here and not above: it takes half a second, which every start of a training would wait for.
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    # It warns of logits changed in place, which nothing here does.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    mesh = init_device_mesh(device.type, (count,))
    for part in [*blocks(model), model]:
        fully_shard(part, mesh=mesh)
        for name in ("prefill", "start", "step"):
            if hasattr(part, name):
                register_fsdp_forward_method(part, name)


def cut_again(model: nn.Module) -> None:
    """Drops the whole weights that a cut model still holds from its last evaluation, for its own have changed."""
    for module in model.modules():
        reshard = getattr(module, "reshard", None)
        if reshard is not None:
            reshard()


def whole(state: Any) -> Any:
    """A copy on the CPU of a tree of dicts, lists and tensors, with tensors that are cut put together."""
    if isinstance(state, Mapping):
        return {key: whole(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [whole(value) for value in state]
    if is_cut(state):
        return state.full_tensor().cpu()
    return state.detach().cpu() if isinstance(state, Tensor) else state


def part_of(tensor: Any, like: Any) -> Any:
    """`tensor` cut as `like` is, where it is cut and of that shape; else as it is."""
    if is_cut(like) and isinstance(tensor, Tensor) and tensor.shape == like.shape:
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements)
    return tensor


def is_cut(tensor: Any) -> bool:
    """Whether it is a tensor of which this process has a part. Torch's class for that takes long to import."""
    return isinstance(tensor, Tensor) and hasattr(tensor, "full_tensor")


def load_weights(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """`model.load_state_dict` of whole tensors, into a model that may be cut."""
    there = model.state_dict()
    model.load_state_dict({name: part_of(value, there.get(name)) for name, value in state.items()})


def load_optimiser(optimiser: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """`optimiser.load_state_dict` of whole tensors, for parameters that may be cut."""
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    kept = {
        place: {name: part_of(value, parameters[int(place)]) for name, value in values.items()}
        for place, values in state["state"].items()
    }
    optimiser.load_state_dict({**state, "state": kept})
