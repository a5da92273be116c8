"""Workers: take runs of sweeps from a store on any machine, train them, and send what comes."""
