"""Do the promises hold?"""
