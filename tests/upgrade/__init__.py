"""Earlier releases beside this one: rolling upgrades, forward and back, under load."""
