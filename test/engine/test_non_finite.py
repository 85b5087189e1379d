"""Logits that are NaN or infinite never become a caption."""

from __future__ import annotations

import copy
from contextlib import closing

import numpy as np
import pytest
import torch

from crossspec_ros.engine.accept import accept_tokens, score_nodes
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.sampling import Sampling
from crossspec_ros.engine.tree import ROOT, DraftTree
from crossspec_ros.errors import NonFiniteError

TREE = DraftTree((1,), (ROOT,), (0.9,), (("memory",),))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("draw", [None, Sampling(1.0, 1.0, 0).draws()])
@pytest.mark.parametrize("kind", [torch.tensor, np.array])
def test_acceptance_refuses_non_finite_logits(value, draw, kind):
    good, bad = [0.0, 5.0, 1.0], [0.0, 5.0, value]
    assert accept_tokens(TREE, kind([good, good]), draw)
    for rows in ([bad, good], [good, bad]):
        with pytest.raises(NonFiniteError):
            accept_tokens(TREE, kind(rows), draw)


@pytest.mark.parametrize("kind", [torch.tensor, np.array])
def test_scores_refuse_nan(kind):
    tree = DraftTree((1, 2), (ROOT, 0), (0.9, 0.9), (("memory",),) * 2)
    with pytest.raises(NonFiniteError), np.errstate(invalid="ignore"):
        score_nodes(tree, kind([[np.nan, 1.0, 2.0], [0.0, 1.0, 2.0]]))


def test_warm_up_refuses_nan_weights(pair):
    target = copy.deepcopy(pair.target)
    with torch.no_grad():
        target.body.layers[2].mlp.up_proj.weight[0, 0] = torch.nan
    with closing(LocalEngine(target)) as engine, pytest.raises(NonFiniteError):
        engine.warm_up(1)
