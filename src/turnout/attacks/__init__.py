"""Attacks: what malicious clients do. To add an attack: one file here, one line below, one test."""

from turnout.attacks.free_rider import FreeRider
from turnout.attacks.gaussian import Gaussian
from turnout.attacks.inner_product import InnerProduct
from turnout.attacks.label_flip import LabelFlip
from turnout.attacks.little_is_enough import LittleIsEnough
from turnout.attacks.model_replacement import ModelReplacement
from turnout.attacks.nan import NaN
from turnout.attacks.scaled_update import ScaledUpdate
from turnout.attacks.sign_flip import SignFlip

__all__ = [
    "FreeRider",
    "Gaussian",
    "InnerProduct",
    "LabelFlip",
    "LittleIsEnough",
    "ModelReplacement",
    "NaN",
    "ScaledUpdate",
    "SignFlip",
]
