"""Teams of robots in one world, as environments of PettingZoo."""
