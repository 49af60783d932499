"""Calls that are refused: of tensors of torch."""

from dataclasses import dataclass, field
from typing import Any

from refused import refused
from subjects import X, product, squares

import mixad


@refused("""
TracerError: product: argument 'x': a torch tensor that requires grad would be silently detached \
here: pass tensor.detach(); outside of mixad's transforms, the plugin mixad-torch records calls of \
kernels for torch, and inside of them its functional_call(module, parameters, x) differentiates a \
module
""")
def refuse_torch_that_requires_grad():
    import torch

    product(torch.ones(3, requires_grad=True), 2.0)


@refused("""
KernelTypeError: product: argument 'x': a torch tensor on the device 'meta' has a shape but no \
elements
  Instead: pass a tensor with elements: torch.empty_like(x, device='cpu')
""")
def refuse_torch_without_elements():
    import torch

    product(torch.ones(3, device="meta"), 2.0)


@refused("""
KernelTypeError: product: argument 'x': a torch tensor of the kind sparse_coo is not supported: \
kernels take dense tensors
  Instead: pass x.to_dense()
""")
def refuse_torch_sparse():
    import torch

    product(torch.ones(3).to_sparse(), 2.0)


@refused("""
TracerError: product: argument 'x': transforms of torch.func (grad, jvp, vmap, ...) do not see \
what happens here: differentiate with mixad.grad; outside of it, the plugin mixad-torch lets grad \
and vjp of torch.func see calls of kernels
""")
def refuse_torch_under_vmap():
    import torch

    torch.func.vmap(lambda x: product(x, 2.0))(torch.ones(3))


@dataclass
class Named:
    x: Any
    names: Any = field(default=(), metadata={"static": True})


@refused("""
KernelTypeError: product: argument 'x': refuse_torch_subclass.<locals>.Named is not supported: it \
is more than an array, and results would be plain arrays
  Instead: pass a plain tensor, such as x.as_subclass(torch.Tensor)
""")
def refuse_torch_subclass():
    import torch

    class Named(torch.Tensor):
        pass

    product(torch.ones(3).as_subclass(Named), 2.0)


@refused("""
MixadError: writing a value that is being differentiated into an array (+=, out=, a[i] = x, \
np.add.at, methods that end in _) would lose its derivative: make the array with zeros_like(x), \
which takes such values, or a new one, total = total + x instead of total += x; torch.index_add, \
scatter_add and the like return a new one
""")
def refuse_torch_change_in_place():
    import torch

    def loss(x):
        torch.ones(3).add_(x)

    mixad.grad(loss)(torch.ones(3))


@refused("""
NoRuleError: torch.linalg.lu_factor() of a value that is being differentiated is not available \
yet: write it with operators, indexing, sum, mean, reshape, matmul, functions of one element such \
as exp, or a function decorated with @mixad.broadcast; say mixad.stop_gradient(x) if no derivative \
is meant; the plugin mixad-torch takes torch's own derivative of it
""")
def refuse_torch_compiled_function():
    import torch

    mixad.grad(lambda x: torch.linalg.lu_factor(x)[0].sum())(torch.eye(2))


@refused("""
TracerError: product: argument 'x': a torch dual tensor would silently lose its tangent here: pass \
torch.autograd.forward_ad.unpack_dual(tensor).primal, or differentiate with mixad.jvp
""")
def refuse_torch_dual_tensor():
    import warnings

    import torch
    from torch.autograd import forward_ad

    with warnings.catch_warnings(action="ignore"), forward_ad.dual_level():  # torch's own
        product(forward_ad.make_dual(torch.ones(3), torch.ones(3)), 2.0)


@refused("""
KernelTypeError: mul: an operand: torch's default dtype is torch.float16, in which kernels do not \
compute
  Instead: torch.set_default_dtype(torch.float32)
""")
def refuse_torch_default_dtype():
    import torch

    torch.set_default_dtype(torch.float16)
    try:
        mixad.grad(squares)(torch.ones(3))
    finally:
        torch.set_default_dtype(torch.float32)


@refused("""
TracerError: view(torch.int32) of a value that is being differentiated is not available: the bits \
of its elements have no derivative; use x.to(dtype) to convert them
""")
def refuse_torch_bits_of_elements():
    import torch

    mixad.grad(lambda x: x.view(torch.int32))(torch.ones(3))


@refused("""
TracerError: type('torch.DoubleTensor') of a value that is being differentiated is not available: \
write x.to(dtype) with a torch.dtype
""")
def refuse_torch_type_by_name():
    import torch

    mixad.grad(lambda x: x.type("torch.DoubleTensor").sum())(torch.ones(3))


@refused("""
TracerError: to('meta') of a value on device(type='cpu') that is being differentiated is not \
available: move the arguments of the transform
""")
def refuse_torch_moving_to_another_device():
    import torch

    mixad.grad(lambda x: x.to("meta").sum())(torch.ones(3))


@refused("""
NoRuleError: dropout() of a value that is being differentiated is not available: multiply by a \
mask that is made outside, torch.nn.functional.dropout(torch.ones_like(x), p); the plugin \
mixad-torch takes torch's own derivative of it
""")
def refuse_torch_dropout():
    import torch

    mixad.grad(lambda x: torch.nn.functional.dropout(x).sum())(torch.ones(3))


@refused("""
NoRuleError: pad(mode='circular') of a value that is being differentiated is not available: use \
mode='constant', or index the tensor; the plugin mixad-torch takes torch's own derivative of it
""")
def refuse_torch_padding_by_elements():
    import torch

    mixad.grad(lambda x: torch.nn.functional.pad(x[None], (1, 1), "circular").sum())(torch.ones(3))


@refused("""
NoRuleError: cross_entropy() of a value that is being differentiated takes weight= for a target of \
classes, label_smoothing= for one of probabilities, and not both: write it as -(weight * target * \
log_softmax(x, 1)).sum(1) with the probabilities that are meant; the plugin mixad-torch takes \
torch's own derivative of it
""")
def refuse_torch_weights_of_smoothed_classes():
    import torch

    def loss(x):
        return torch.nn.functional.cross_entropy(
            x, torch.tensor([0, 1, 2]), x[0], label_smoothing=0.1
        )

    mixad.grad(loss)(torch.ones(3, 3))


@refused("""
NoRuleError: torch.mode() of a value that is being differentiated is not available yet: write it \
with operators, indexing, sum, mean, reshape, matmul, functions of one element such as exp, or a \
function decorated with @mixad.broadcast; say mixad.stop_gradient(x) if no derivative is meant; \
the plugin mixad-torch takes torch's own derivative of it
""")
def refuse_torch_functions_that_are_missing():
    import torch

    mixad.grad(lambda x: torch.mode(x))(torch.ones(3))


@refused("""
KernelSyntaxError: `torch.special.expit` takes tensors: a kernel sees one element of each
  File "...", line 4, column 31
    mixad.broadcast(lambda x: torch.special.expit(x))(X)
                              ^^^^^^^^^^^^^^^^^^^^^^
  Instead: mixad.special.sigmoid
""")
def refuse_torch_function_in_a_kernel():
    import torch

    mixad.broadcast(lambda x: torch.special.expit(x))(X)


@refused("""
KernelTypeError: torch subtracts no booleans from numbers, and no numbers from booleans
  Instead: convert them: x - y.to(x.dtype), x - 1.0
""")
def refuse_torch_difference_with_a_boolean():
    import torch

    mixad.grad(lambda x: (x - True).sum())(torch.ones(3))
