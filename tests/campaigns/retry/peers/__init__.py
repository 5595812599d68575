"""How many tasks of the retry study do other ways to use the same model fix?"""
