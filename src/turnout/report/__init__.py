"""Tables, figures and pages of a study."""
