"""Houses: seeded specs, the generator, checks, pictures, and exports to MuJoCo and Habitat."""
