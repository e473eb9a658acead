"""How fast a round is: turnout beside a plain loop, a hand-written limit and other frameworks."""
