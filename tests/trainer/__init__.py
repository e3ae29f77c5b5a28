"""Does the trainer prepare, train, measure and report as it says?"""
