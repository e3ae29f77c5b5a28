"""Does each part do what it says, alone?"""
