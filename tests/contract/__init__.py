"""Does everything that fulfils a port keep the port's contract, the fakes included?"""
