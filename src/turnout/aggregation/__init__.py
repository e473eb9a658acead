"""Aggregation: how the server combines client updates. To add a rule: one file here, one line below, one test."""

from turnout.aggregation.agnostic import Agnostic
from turnout.aggregation.appeal import Appeal
from turnout.aggregation.cluster_fedvarp import ClusterFedVARP
from turnout.aggregation.ensemble_transfer import EnsembleTransfer
from turnout.aggregation.fedavg import FedAvg
from turnout.aggregation.fednova import FedNova
from turnout.aggregation.fedvarp import FedVARP
from turnout.aggregation.fltrust import FLTrust
from turnout.aggregation.joint import Joint
from turnout.aggregation.krum import Krum
from turnout.aggregation.median import Median
from turnout.aggregation.mifa import MIFA
from turnout.aggregation.multi_krum import MultiKrum
from turnout.aggregation.norm_clipping import NormClipping
from turnout.aggregation.private import Private
from turnout.aggregation.q_ffl import QFFL
from turnout.aggregation.scheme_a import SchemeA
from turnout.aggregation.scheme_b import SchemeB
from turnout.aggregation.scheme_c import SchemeC
from turnout.aggregation.tilted import Tilted
from turnout.aggregation.trimmed_mean import TrimmedMean

__all__ = [
    "MIFA",
    "QFFL",
    "Agnostic",
    "Appeal",
    "ClusterFedVARP",
    "EnsembleTransfer",
    "FLTrust",
    "FedAvg",
    "FedNova",
    "FedVARP",
    "Joint",
    "Krum",
    "Median",
    "MultiKrum",
    "NormClipping",
    "Private",
    "SchemeA",
    "SchemeB",
    "SchemeC",
    "Tilted",
    "TrimmedMean",
]
