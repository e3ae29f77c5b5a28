"""What does a user of the command line see?"""
