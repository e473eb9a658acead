"""The world as a simulation: fleet rules say who is up and how far each client gets, an engine does the arithmetic."""

from turnout.world.simulation.simulation import Simulation, simulate

__all__ = ["Simulation", "simulate"]
