"""How arrays lie on devices."""
