"""Who answers the round: a simulation of clients on an engine, or real devices."""
