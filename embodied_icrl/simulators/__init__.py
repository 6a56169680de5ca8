"""Simulators of houses behind one protocol: MuJoCo and Habitat."""
