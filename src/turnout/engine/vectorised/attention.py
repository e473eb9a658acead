"""Multi-head attention over a stack of rows: projections of each row's own, and PyTorch's attention for all at once."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from turnout.engine.vectorised.layers import CannotLower, Linear, LinearOp, Op, Pass, Stored


def _attention(layer: nn.MultiheadAttention, own: dict[str, int], stored: Stored) -> Op:
    plain = "in_proj_weight" in own and layer.bias_k is None and not layer.add_zero_attn
    if not plain or (layer.dropout and layer.training):
        raise CannotLower("attention with dropout, other widths or added keys")
    inner = LinearOp(Linear(own["in_proj_weight"], own.get("in_proj_bias"), stored(own["in_proj_weight"])))
    outer = LinearOp(Linear(own["out_proj.weight"], own.get("out_proj.bias"), stored(own["out_proj.weight"])))

    def heads(h: Tensor) -> Tensor:
        return h.reshape(*h.shape[:2], layer.num_heads, -1).transpose(1, 2)

    def attention(
        run: Pass,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> tuple[Tensor, None]:
        if key is not query or value is not query or query.dim() != 3:
            raise CannotLower("attention to something else than the queries")
        h = query if layer.batch_first else query.transpose(0, 1)
        q, k, v = (heads(part) for part in inner(run, h).chunk(3, dim=-1))
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            attn_mask = ~attn_mask  # here it says who is left out, below who is attended to
        out = F.scaled_dot_product_attention(q, k, v, attn_mask)
        out = outer(run, out.transpose(1, 2).flatten(2))
        return out if layer.batch_first else out.transpose(0, 1), None

    return attention


ATTENTION: dict[type[nn.Module], Callable[[Any, dict[str, int], Stored], Op]] = {nn.MultiheadAttention: _attention}
