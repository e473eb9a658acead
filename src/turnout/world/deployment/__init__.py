"""The world as real devices: messages carry orders to them, and their answers are checked before anything uses them."""

from turnout.world.deployment.deployed import deployed
from turnout.world.deployment.deployment import Deployment
from turnout.world.deployment.device import Device
from turnout.world.deployment.in_process import InProcess
from turnout.world.deployment.limits import Limits
from turnout.world.deployment.mailbox import DeviceFacts, Mailbox
from turnout.world.deployment.real_fleet import real_fleet
from turnout.world.deployment.transport import Reply, Transport

__all__ = [
    "Deployment",
    "Device",
    "DeviceFacts",
    "InProcess",
    "Limits",
    "Mailbox",
    "Reply",
    "Transport",
    "deployed",
    "real_fleet",
]
